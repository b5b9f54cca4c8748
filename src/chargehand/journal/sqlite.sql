-- The tables of a journal, and every query that is asked of them. A query stands under its name and
-- a line of purpose; `queries.py` reads them from here.

-- name: schema
-- Make the tables of a new journal. A change of them is a change of FORMAT in `sqlite.py`.
-- streams: one row per stream, its newest state. `seal` is a checksum over the rest of the row.
CREATE TABLE streams (
    name TEXT PRIMARY KEY,
    id INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    hash BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT NOT NULL,
    ended INTEGER NOT NULL,
    began_at INTEGER,
    changed_at INTEGER,
    forgotten INTEGER NOT NULL,
    seal BLOB NOT NULL
) STRICT, WITHOUT ROWID;
-- entries: one row per event. The hash before it is that of the row before it.
CREATE TABLE entries (
    stream INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    at INTEGER NOT NULL,
    author INTEGER NOT NULL,
    payload BLOB NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (stream, seq)
) STRICT, WITHOUT ROWID;
-- authors: every node that ever wrote an entry, by the number that entries hold of it.
CREATE TABLE authors (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;
-- keys: idempotency keys that were used, and what for.
CREATE TABLE keys (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (scope, name)
) STRICT, WITHOUT ROWID;
-- mail: what other processes ask for. Mail that is taken has no body any more.
CREATE TABLE mail (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    stream TEXT NOT NULL,
    subject TEXT NOT NULL,
    body BLOB,
    digest BLOB NOT NULL,
    seal BLOB NOT NULL
) STRICT;
CREATE INDEX mail_unread ON mail (id) WHERE body IS NOT NULL;
-- nodes: processes that lead something. `expires` is on the clock that counts from the boot.
CREATE TABLE nodes (
    id TEXT PRIMARY KEY,
    boot TEXT NOT NULL,
    expires INTEGER NOT NULL,
    pid INTEGER NOT NULL,
    host TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- commits: the newest commits of the whole journal, chained; older ones are pruned.
CREATE TABLE commits (
    number INTEGER PRIMARY KEY,
    hash BLOB NOT NULL
) STRICT;
-- blob_refs: which stream names which blob; stream 0 stands for nobody any more.
CREATE TABLE blob_refs (
    digest TEXT NOT NULL,
    stream INTEGER NOT NULL,
    PRIMARY KEY (digest, stream)
) STRICT, WITHOUT ROWID;
-- meta: `streams` is how many were ever made, and so the newest id; `marked`, if there, that a head mark was written.
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta (name, value) VALUES ('streams', 0);

-- name: serving
-- Make the table of what processes serve; it comes with the first that does, and with it format 2.
-- serving: what a process serves, as JSON. Rows of nodes that are gone say nothing.
CREATE TABLE serving (
    node TEXT PRIMARY KEY,
    offer TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- name: tables
-- How the tables were made, to be compared with how they should have been.
SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name;

-- name: count_tables
-- Whether anything is in the file at all.
SELECT count(*) FROM sqlite_schema;

-- name: head
-- The newest state of one stream.
SELECT name, id, seq, hash, epoch, owner, ended, began_at, changed_at, forgotten, seal
FROM streams WHERE name = ?;

-- name: all_heads
-- The newest state of every stream, the one that changed last first.
SELECT name, id, seq, hash, epoch, owner, ended, began_at, changed_at, forgotten, seal
FROM streams ORDER BY changed_at DESC, id DESC;

-- name: kept_heads
-- The same, without those whose events were deleted.
SELECT name, id, seq, hash, epoch, owner, ended, began_at, changed_at, forgotten, seal
FROM streams WHERE NOT forgotten ORDER BY changed_at DESC, id DESC;

-- name: led_streams
-- Streams that a node leads, or led when it died, and that node.
SELECT name, owner FROM streams WHERE owner <> '' AND NOT ended ORDER BY id;

-- name: put_head
-- Keep the new state of a stream, whether it had one or not.
REPLACE INTO streams VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: open_streams
-- Runs and boards that have not ended.
SELECT name, seq, owner FROM streams WHERE NOT ended AND NOT forgotten;

-- name: stream_number
-- The number that entries have of a stream.
SELECT id FROM streams WHERE name = ? AND NOT forgotten;

-- name: stream_size
-- How many events a stream has, and how many bytes they say.
SELECT count(*), total(length(payload)) FROM entries WHERE stream = ?;

-- name: request
-- The first event of a run.
SELECT e.payload, e.version FROM streams AS s JOIN entries AS e ON e.stream = s.id AND e.seq = 1
WHERE s.name = ? AND NOT s.forgotten;

-- name: leftovers
-- Deleted streams that still have events to be cleared away.
SELECT name, id FROM streams AS s
WHERE forgotten AND EXISTS (SELECT 1 FROM entries AS e WHERE e.stream = s.id) ORDER BY id;

-- name: add_entry
-- Keep one event; widened to many rows by `sql_queries.BULK_INSERTS`.
INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: entries
-- Events of one stream in order.
SELECT seq, epoch, kind, version, at, author, payload, hash
FROM entries WHERE stream = ? AND seq > ? AND seq <= ? ORDER BY seq;

-- name: entry_hash
-- The hash that the next entry builds on, and the epoch that it may not be below.
SELECT hash, epoch FROM entries WHERE stream = ? AND seq = ?;

-- name: piece_end
-- The first event of a stream after so many; none if there are no more.
SELECT seq FROM entries WHERE stream = ? ORDER BY seq LIMIT 1 OFFSET ?;

-- name: drop_entries
-- Delete the events of one stream that come before a number; without one, all.
DELETE FROM entries WHERE stream = ?1 AND (?2 IS NULL OR seq < ?2);

-- name: author
-- The number of a node among the authors.
SELECT number FROM authors WHERE name = ?;

-- name: add_author
-- Give a node its number.
INSERT INTO authors (name) VALUES (?) RETURNING number;

-- name: all_authors
-- Every author, by number.
SELECT number, name FROM authors;

-- name: key
-- What an idempotency key was used for.
SELECT digest, stream, seq, seal FROM keys WHERE scope = ? AND name = ?;

-- name: all_keys
-- Every key, to check their seals.
SELECT scope, name, digest, stream, seq, seal FROM keys;

-- name: keys_of_stream
-- The keys that were used for entries of one stream.
SELECT scope, name, digest, stream, seq, seal FROM keys WHERE stream = ? ORDER BY seq, scope, name;

-- name: add_key
-- Remember what an idempotency key was used for.
INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?);

-- name: drop_keys
-- Forget the keys that were used for one stream.
DELETE FROM keys WHERE scope = ?;

-- name: mail_by_key
-- Whether this mail was posted before.
SELECT stream, subject, digest FROM mail WHERE key = ?;

-- name: mail_by_id
-- Whether this mail can still be taken.
SELECT key, body IS NOT NULL FROM mail WHERE id = ?;

-- name: add_mail
-- Keep mail until it is taken; it gets its seal when its number is known.
INSERT INTO mail (key, stream, subject, body, digest, seal) VALUES (?, ?, ?, ?, ?, x'') RETURNING id;

-- name: seal_mail
-- Put the seal on new mail.
UPDATE mail SET seal = ? WHERE id = ?;

-- name: take_mail
-- Mark mail as taken.
UPDATE mail SET body = NULL WHERE id = ?;

-- name: unread_mail
-- Mail that nobody has taken, oldest first.
SELECT id, key, stream, subject, body, digest, seal FROM mail WHERE body IS NOT NULL ORDER BY id;

-- name: drop_mail
-- Forget the taken mail of one stream.
DELETE FROM mail WHERE stream = ? AND body IS NULL;

-- name: node
-- What is known of the life of a node.
SELECT boot, expires, pid, host FROM nodes WHERE id = ?;

-- name: nodes
-- Every node of this run of the machine.
SELECT id, expires, pid, host FROM nodes WHERE boot = ? ORDER BY id;

-- name: offers
-- What each process serves.
SELECT node, offer FROM serving;

-- name: put_offer
-- Publish what a process serves.
REPLACE INTO serving VALUES (?, ?);

-- name: drop_offer
-- A process serves no longer.
DELETE FROM serving WHERE node = ?;

-- name: drop_old_offers
-- Clear away what nodes served that are gone.
DELETE FROM serving WHERE node NOT IN (SELECT id FROM nodes);

-- name: drop_old_nodes
-- Clear away nodes from before the machine was started.
DELETE FROM nodes WHERE boot <> ?;

-- name: put_node
-- Join, or renew a lease.
REPLACE INTO nodes VALUES (?, ?, ?, ?, ?);

-- name: drop_node
-- Leave, or clear away a dead node.
DELETE FROM nodes WHERE id = ?;

-- name: last_commit
-- The newest commit of the whole journal.
SELECT number, hash FROM commits ORDER BY number DESC LIMIT 1;

-- name: commit_hash
-- The hash of one commit, if it is still kept.
SELECT hash FROM commits WHERE number = ?;

-- name: add_commit
-- Number the transaction under way.
INSERT INTO commits VALUES (?, ?);

-- name: prune_commits
-- Drop commits that no head mark can name any more.
DELETE FROM commits WHERE number < ?;

-- name: add_blob_ref
-- Note that a stream names a blob.
INSERT OR IGNORE INTO blob_refs VALUES (?, ?);

-- name: named_blobs
-- Blobs that some stream names.
SELECT DISTINCT digest FROM blob_refs WHERE stream <> 0;

-- name: all_blobs
-- Blobs that some stream names, or named once.
SELECT DISTINCT digest FROM blob_refs;

-- name: blobs_of
-- Blobs that these streams name, and which part of all that name each they are. Bind a JSON list of numbers.
SELECT own.digest, count(*) * 1.0 / (
    SELECT count(*) FROM blob_refs AS r WHERE r.digest = own.digest AND r.stream <> 0
)
FROM blob_refs AS own WHERE own.stream IN (SELECT value FROM json_each(?)) GROUP BY own.digest;

-- name: forgotten_refs
-- Blobs that deleted streams named, so many at most.
SELECT digest, stream FROM blob_refs
WHERE stream <> 0 AND stream IN (SELECT id FROM streams WHERE forgotten) LIMIT ?;

-- name: orphan_blob
-- Note that a blob was named by a stream that is deleted.
INSERT OR IGNORE INTO blob_refs VALUES (?, 0);

-- name: drop_blob_ref
-- Forget that a stream names a blob.
DELETE FROM blob_refs WHERE digest = ? AND stream = ?;

-- name: orphans
-- Blobs that nobody names any more.
SELECT digest FROM blob_refs WHERE stream = 0 AND digest NOT IN (
    SELECT digest FROM blob_refs WHERE stream <> 0
);

-- name: drop_orphan
-- Forget a blob that was deleted.
DELETE FROM blob_refs WHERE digest = ? AND stream = 0;

-- name: meta
-- One of the journal's own numbers.
SELECT value FROM meta WHERE name = ?;

-- name: note_mark
-- there is a head mark from now on
INSERT OR IGNORE INTO meta (name, value) VALUES ('marked', 1);

-- name: put_meta
-- Change one of the journal's own numbers.
UPDATE meta SET value = ? WHERE name = ?;

-- name: count_streams
-- How many streams there are, to be compared with how many were made.
SELECT count(*) FROM streams;
