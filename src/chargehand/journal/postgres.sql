-- The tables of a journal in PostgreSQL, and every query that is asked of them. A query stands under its
-- name and a line of purpose; `sql_queries.py` reads them from here. All names begin with `chargehand_`, so
-- that a journal can share a schema with other tables.

-- name: schema_1
-- Make the tables of format 1.
-- meta: `format` is the version of these tables, `journal` the name that tells this journal from others.
CREATE TABLE chargehand_meta (
    name text PRIMARY KEY,
    value text NOT NULL
);
-- streams: one row per stream, its newest state. Its lock orders everything that is added to the stream.
CREATE TABLE chargehand_streams (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text NOT NULL,
    name text NOT NULL,
    seq bigint NOT NULL DEFAULT 0,
    hash bytea NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    owner text NOT NULL DEFAULT '',
    ended boolean NOT NULL DEFAULT false,
    began_at bigint,
    changed_at bigint,
    forgotten boolean NOT NULL DEFAULT false,
    UNIQUE (namespace, name)
);
-- entries: one row per event. The hash before it is that of the row before it.
CREATE TABLE chargehand_entries (
    stream bigint NOT NULL,
    seq bigint NOT NULL,
    epoch bigint NOT NULL,
    kind text NOT NULL,
    version integer NOT NULL,
    at bigint NOT NULL,
    author text NOT NULL,
    payload bytea NOT NULL,
    hash bytea NOT NULL,
    PRIMARY KEY (stream, seq)
);
-- keys: idempotency keys that were used, and what for.
CREATE TABLE chargehand_keys (
    namespace text NOT NULL,
    scope text NOT NULL,
    name text NOT NULL,
    digest text NOT NULL,
    stream text NOT NULL DEFAULT '',
    seq bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, scope, name)
);
-- mail: what other processes ask for. Mail that is taken has no body any more.
CREATE TABLE chargehand_mail (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    namespace text NOT NULL,
    key text NOT NULL,
    stream text NOT NULL,
    subject text NOT NULL,
    body bytea,
    digest bytea NOT NULL,
    UNIQUE (namespace, key)
);
CREATE INDEX chargehand_mail_unread ON chargehand_mail (namespace, id) WHERE body IS NOT NULL;
-- nodes: processes that write. `expires` is on the clock of the database; `committed` counts a node's
-- transactions, so that one whose connection broke can tell whether its last was stored.
CREATE TABLE chargehand_nodes (
    namespace text NOT NULL,
    id text NOT NULL,
    expires timestamptz NOT NULL,
    pid integer NOT NULL,
    host text NOT NULL,
    committed bigint NOT NULL,
    PRIMARY KEY (namespace, id)
);
-- blobs: bytes too large for an event, under the digest of what they are.
CREATE TABLE chargehand_blobs (
    namespace text NOT NULL,
    digest text NOT NULL,
    data bytea NOT NULL,
    put_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, digest)
);
ALTER TABLE chargehand_blobs ALTER COLUMN data SET STORAGE EXTERNAL;
-- blob_refs: which stream names which blob.
CREATE TABLE chargehand_blob_refs (
    digest text NOT NULL,
    stream bigint NOT NULL,
    PRIMARY KEY (digest, stream)
);
CREATE INDEX chargehand_blob_refs_stream ON chargehand_blob_refs (stream);
-- facets: one row for each thing a note can be found by; a facet is a digest of board and word.
CREATE TABLE chargehand_facets (
    stream bigint NOT NULL,
    facet bigint NOT NULL,
    seq bigint NOT NULL,
    importance double precision NOT NULL,
    PRIMARY KEY (stream, facet, seq)
);
CREATE INDEX chargehand_facets_rank ON chargehand_facets (stream, facet, importance, seq);
-- blocks: where each version of a block stands in its stream.
CREATE TABLE chargehand_blocks (
    stream bigint NOT NULL,
    label text NOT NULL,
    version bigint NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (stream, label, version)
);
-- guards: who may touch a block.
CREATE TABLE chargehand_guards (
    stream bigint NOT NULL,
    label text NOT NULL,
    guard bytea NOT NULL,
    PRIMARY KEY (stream, label)
);

-- name: schema_2
-- What format 2 adds to format 1.
-- serving: what a process serves, as JSON. Rows of nodes that are gone say nothing.
CREATE TABLE chargehand_serving (
    namespace text NOT NULL,
    node text NOT NULL,
    offer text NOT NULL,
    PRIMARY KEY (namespace, node)
);

-- name: has_meta
-- Whether there is a journal here. to_regclass() would go on saying no once it has said so.
SELECT EXISTS (
    SELECT 1 FROM pg_class WHERE relname = 'chargehand_meta' AND pg_table_is_visible(oid)
);

-- name: meta
-- One of the journal's own facts.
SELECT value FROM chargehand_meta WHERE name = $1;

-- name: put_meta
-- Keep one of the journal's own facts.
INSERT INTO chargehand_meta VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2;

-- name: one_migration
-- Only one process makes or changes the tables at a time.
SELECT pg_advisory_xact_lock(7165283104923840311);

-- name: facts
-- What the server is, and whether it can keep what it has acknowledged.
SELECT current_setting('server_version_num')::int AS version,
       current_setting('fsync') AS fsync,
       current_setting('full_page_writes') AS full_page_writes,
       pg_is_in_recovery() AS is_replica;

-- name: claim_keys
-- Claim these keys, in order; returns those that nobody has used before.
INSERT INTO chargehand_keys (namespace, scope, name, digest)
SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[])
ON CONFLICT DO NOTHING RETURNING scope, name;

-- name: known_keys
-- What these keys were used for.
SELECT scope, name, digest, stream, seq FROM chargehand_keys
WHERE namespace = $1 AND (scope, name) IN (SELECT * FROM unnest($2::text[], $3::text[]));

-- name: keys_of_stream
-- The keys that were used for entries of one stream.
SELECT scope, name, digest, seq FROM chargehand_keys
WHERE namespace = $1 AND stream = $2 ORDER BY seq, scope, name;

-- name: put_keys
-- Note what new keys were used for.
UPDATE chargehand_keys AS k SET digest = n.digest, stream = n.stream, seq = n.seq
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[])
    AS n (scope, name, digest, stream, seq)
WHERE k.namespace = $1 AND k.scope = n.scope AND k.name = n.name;

-- name: drop_keys
-- Give back keys that were claimed for what was refused.
DELETE FROM chargehand_keys WHERE namespace = $1
AND (scope, name) IN (SELECT * FROM unnest($2::text[], $3::text[]));

-- name: make_streams
-- Make these streams unless they are there, in order.
INSERT INTO chargehand_streams (namespace, name, hash)
SELECT $1, name, $3 FROM unnest($2::text[]) AS name
ON CONFLICT DO NOTHING RETURNING name;

-- name: lock_heads
-- The newest state of these streams, which nobody else can change before this transaction ends.
SELECT name, id, seq, hash, epoch, owner, ended, began_at, changed_at, forgotten
FROM chargehand_streams WHERE namespace = $1 AND name = ANY($2::text[]) ORDER BY name FOR UPDATE;

-- name: drop_unused
-- Give back streams that were made for what was refused.
DELETE FROM chargehand_streams WHERE id = ANY($1::bigint[]);

-- name: put_heads
-- Keep the new states of streams.
UPDATE chargehand_streams AS s SET seq = n.seq, hash = n.hash, epoch = n.epoch, owner = n.owner,
    ended = n.ended, began_at = n.began_at, changed_at = n.changed_at, forgotten = n.forgotten
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bigint[], $5::text[], $6::boolean[],
    $7::bigint[], $8::bigint[], $9::boolean[])
    AS n (id, seq, hash, epoch, owner, ended, began_at, changed_at, forgotten)
WHERE s.id = n.id;

-- name: head
-- The newest state of one stream.
SELECT name, id, seq, hash, epoch, owner, ended, began_at, changed_at, forgotten
FROM chargehand_streams WHERE namespace = $1 AND name = $2;

-- name: all_heads
-- The newest state of every stream, the one that changed last first.
SELECT name, id, seq, hash, epoch, owner, ended, began_at, changed_at, forgotten
FROM chargehand_streams WHERE namespace = $1 ORDER BY changed_at DESC NULLS LAST, id DESC;

-- name: kept_heads
-- The same, without those whose events were deleted.
SELECT name, id, seq, hash, epoch, owner, ended, began_at, changed_at, forgotten
FROM chargehand_streams WHERE namespace = $1 AND NOT forgotten
ORDER BY changed_at DESC NULLS LAST, id DESC;

-- name: open_streams
-- Runs and boards that have not ended.
SELECT name, seq, owner FROM chargehand_streams
WHERE namespace = $1 AND NOT ended AND NOT forgotten;

-- name: requests
-- The first events of these runs.
SELECT s.name, e.payload, e.version FROM chargehand_streams AS s
JOIN chargehand_entries AS e ON e.stream = s.id AND e.seq = 1
WHERE s.namespace = $1 AND s.name = ANY($2::text[]) AND NOT s.forgotten;

-- name: used
-- Bytes of all events and blobs that are kept, with what a row takes beside its payload.
SELECT coalesce((
    SELECT sum(octet_length(e.payload) + $2) FROM chargehand_entries AS e
    JOIN chargehand_streams AS s ON s.id = e.stream WHERE s.namespace = $1 AND NOT s.forgotten
), 0) + coalesce((
    SELECT sum(octet_length(b.data)) FROM chargehand_blobs AS b
    WHERE b.namespace = $1 AND EXISTS (
        SELECT 1 FROM chargehand_blob_refs AS r JOIN chargehand_streams AS s ON s.id = r.stream
        WHERE r.digest = b.digest AND s.namespace = $1 AND NOT s.forgotten
    )
), 0);

-- name: sizes
-- The same for each of these streams; a blob that several name counts for each in part.
SELECT s.name, coalesce((
    SELECT sum(octet_length(e.payload) + $3) FROM chargehand_entries AS e WHERE e.stream = s.id
), 0) + coalesce((
    SELECT sum(octet_length(b.data) / (
        SELECT count(*) FROM chargehand_blob_refs AS o WHERE o.digest = b.digest
    )) FROM chargehand_blobs AS b JOIN chargehand_blob_refs AS r ON r.digest = b.digest
    WHERE b.namespace = $1 AND r.stream = s.id
), 0)
FROM chargehand_streams AS s WHERE s.namespace = $1 AND s.name = ANY($2::text[]);

-- name: leftovers
-- Deleted streams that still have events or blobs to be cleared away.
SELECT name, id FROM chargehand_streams AS s WHERE namespace = $1 AND forgotten AND (
    EXISTS (SELECT 1 FROM chargehand_entries AS e WHERE e.stream = s.id)
    OR EXISTS (SELECT 1 FROM chargehand_blob_refs AS r WHERE r.stream = s.id)
) ORDER BY id;

-- name: one_sweep
-- Whether this transaction may clear away: two at once would wait for each other.
SELECT pg_try_advisory_xact_lock(7165283104923840312);

-- name: entries
-- Events of one stream in order, so many at most.
SELECT seq, epoch, kind, version, at, author, payload, hash FROM chargehand_entries
WHERE stream = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4;

-- name: entry_hash
-- The hash that the next entry builds on, and the epoch that it may not be below.
SELECT hash, epoch FROM chargehand_entries WHERE stream = $1 AND seq = $2;

-- name: drop_entries
-- Delete the first events of one stream, so many at most.
DELETE FROM chargehand_entries WHERE stream = $1 AND seq < (
    SELECT min(seq) + $2 FROM chargehand_entries WHERE stream = $1
);

-- name: lock_mail
-- Whether this mail can still be taken; nobody else can take it before this transaction ends.
SELECT id, key, body IS NOT NULL AS is_unread FROM chargehand_mail
WHERE namespace = $1 AND id = ANY($2::bigint[]) ORDER BY id FOR UPDATE;

-- name: add_mail
-- Keep mail until it is taken, unless its key was posted before.
INSERT INTO chargehand_mail (namespace, key, stream, subject, body, digest)
VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (namespace, key) DO NOTHING RETURNING id;

-- name: mail_by_key
-- What was posted under this key.
SELECT stream, subject, digest FROM chargehand_mail WHERE namespace = $1 AND key = $2;

-- name: take_mail
-- Mark mail as taken.
UPDATE chargehand_mail SET body = NULL WHERE namespace = $1 AND id = ANY($2::bigint[]);

-- name: unread_mail
-- Mail that nobody has taken, oldest first.
SELECT id, key, stream, subject, body, digest FROM chargehand_mail
WHERE namespace = $1 AND body IS NOT NULL ORDER BY id;

-- name: drop_mail
-- Forget the taken mail of one stream.
DELETE FROM chargehand_mail WHERE namespace = $1 AND stream = $2 AND body IS NULL;

-- name: nodes
-- Every node whose lease holds by the clock of the database, and for how long.
SELECT id, extract(epoch FROM expires - clock_timestamp())::float8 AS remaining, pid, host
FROM chargehand_nodes WHERE namespace = $1 AND expires > clock_timestamp();

-- name: known
-- Every node that has not left, what it serves, and how long its lease lasts by the clock of the database.
SELECT n.id, n.pid, n.host, coalesce(s.offer, ''), extract(epoch FROM n.expires - clock_timestamp())::float8
FROM chargehand_nodes AS n
LEFT JOIN chargehand_serving AS s ON s.namespace = n.namespace AND s.node = n.id
WHERE n.namespace = $1 ORDER BY n.id;

-- name: put_offer
-- Publish what a node serves.
INSERT INTO chargehand_serving VALUES ($1, $2, $3)
ON CONFLICT (namespace, node) DO UPDATE SET offer = $3;

-- name: drop_offer
-- A node serves no longer.
DELETE FROM chargehand_serving WHERE namespace = $1 AND node = $2;

-- name: drop_old_offers
-- Clear away what nodes served that are gone.
DELETE FROM chargehand_serving AS s WHERE namespace = $1 AND NOT EXISTS (
    SELECT 1 FROM chargehand_nodes AS n WHERE n.namespace = $1 AND n.id = s.node
);

-- name: abandoned
-- Streams that a node has not released whose lease has ended by the clock of the database.
SELECT s.name FROM chargehand_streams AS s
LEFT JOIN chargehand_nodes AS n ON n.namespace = s.namespace AND n.id = s.owner
WHERE s.namespace = $1 AND s.owner <> '' AND NOT s.ended
AND (n.id IS NULL OR n.expires <= clock_timestamp()) ORDER BY s.id;

-- name: put_node
-- Count a transaction of this node; with a lease longer than zero, renew that too.
INSERT INTO chargehand_nodes VALUES ($1, $2, clock_timestamp() + $3, $4, $5, $6)
ON CONFLICT (namespace, id) DO UPDATE SET committed = $6,
    expires = CASE WHEN $3 > interval '0' THEN clock_timestamp() + $3 ELSE chargehand_nodes.expires END;

-- name: renew_node
-- Renew the lease of a node that has written before.
UPDATE chargehand_nodes SET expires = clock_timestamp() + $3 WHERE namespace = $1 AND id = $2;

-- name: committed
-- How far this node had come; waits for a transaction of it that is still under way.
SELECT committed FROM chargehand_nodes WHERE namespace = $1 AND id = $2 FOR UPDATE;

-- name: drop_node
-- Leave.
DELETE FROM chargehand_nodes WHERE namespace = $1 AND id = $2;

-- name: drop_old_nodes
-- Clear away nodes that have been silent for a day and lead nothing.
DELETE FROM chargehand_nodes AS n WHERE namespace = $1 AND expires < clock_timestamp() - interval '1 day'
AND NOT EXISTS (SELECT 1 FROM chargehand_streams AS s WHERE s.namespace = $1 AND s.owner = n.id);

-- name: snapshot
-- Differs from the last time whenever a transaction has ended in between.
SELECT pg_current_snapshot()::text;

-- name: tell
-- Wake those who listen, once this transaction is committed.
SELECT pg_notify('chargehand', $1);

-- name: put_blob
-- Keep a blob, or note that it was put again.
INSERT INTO chargehand_blobs VALUES ($1, $2, $3, clock_timestamp())
ON CONFLICT (namespace, digest) DO UPDATE SET put_at = clock_timestamp();

-- name: blob
-- The bytes of one blob.
SELECT data FROM chargehand_blobs WHERE namespace = $1 AND digest = $2;

-- name: add_blob_refs
-- Note that streams name blobs.
INSERT INTO chargehand_blob_refs SELECT * FROM unnest($1::text[], $2::bigint[]) ON CONFLICT DO NOTHING;

-- name: drop_blob_refs
-- Forget which blobs a stream names.
DELETE FROM chargehand_blob_refs WHERE stream = $1 RETURNING digest;

-- name: drop_orphans
-- Delete those of these blobs that nobody names any more, unless they were put lately.
DELETE FROM chargehand_blobs AS b WHERE namespace = $1 AND digest = ANY($2::text[])
AND put_at < clock_timestamp() - $3::interval
AND NOT EXISTS (
    SELECT 1 FROM chargehand_blob_refs AS r JOIN chargehand_streams AS s ON s.id = r.stream
    WHERE r.digest = b.digest AND s.namespace = $1
);

-- name: boards_kept
-- The streams of all boards that were not deleted.
SELECT name FROM chargehand_streams
WHERE namespace = $1 AND starts_with(name, 'board:') AND NOT forgotten;

-- name: newest_blocks
-- The newest version of each of these blocks. Streams and labels are paired.
SELECT b.stream, b.label, max(b.version) AS version FROM chargehand_blocks AS b
JOIN unnest($1::bigint[], $2::text[]) AS n (stream, label) ON b.stream = n.stream AND b.label = n.label
GROUP BY b.stream, b.label;

-- name: guards
-- Who may touch each of these blocks. Streams and labels are paired.
SELECT g.stream, g.label, g.guard FROM chargehand_guards AS g
JOIN unnest($1::bigint[], $2::text[]) AS n (stream, label) ON g.stream = n.stream AND g.label = n.label;

-- name: block_labels
-- All blocks of a board that were written or guarded.
SELECT label FROM chargehand_blocks WHERE stream = $1 AND version = 1
UNION SELECT label FROM chargehand_guards WHERE stream = $1;

-- name: block_place
-- Where one version of a block stands, 0 for the newest.
SELECT version, seq FROM chargehand_blocks
WHERE stream = $1 AND label = $2 AND (version = $3 OR $3 = 0) ORDER BY version DESC LIMIT 1;

-- name: put_guards
-- Note who may touch blocks.
INSERT INTO chargehand_guards SELECT * FROM unnest($1::bigint[], $2::text[], $3::bytea[])
ON CONFLICT (stream, label) DO UPDATE SET guard = excluded.guard;

-- name: drop_unnamed
-- Delete blobs that nobody names and that were put long ago, so many at most.
DELETE FROM chargehand_blobs WHERE namespace = $1 AND digest IN (
    SELECT b.digest FROM chargehand_blobs AS b
    WHERE b.namespace = $1 AND b.put_at < clock_timestamp() - $2::interval AND NOT EXISTS (
        SELECT 1 FROM chargehand_blob_refs AS r JOIN chargehand_streams AS s ON s.id = r.stream
        WHERE r.digest = b.digest AND s.namespace = $1
    ) LIMIT $3
) AND put_at < clock_timestamp() - $2::interval;

-- name: drop_keys_of
-- Forget the keys that were used for one stream.
DELETE FROM chargehand_keys WHERE namespace = $1 AND scope = $2;

-- name: drop_board
-- Forget what the notes and blocks of a board are found by.
WITH facets AS (DELETE FROM chargehand_facets WHERE stream = $1),
     blocks AS (DELETE FROM chargehand_blocks WHERE stream = $1)
DELETE FROM chargehand_guards WHERE stream = $1;

-- name: board_entries
-- Events of a board, each with the hash before it.
SELECT e.seq, e.epoch, e.kind, e.version, e.at, e.author, e.payload, e.hash, p.hash AS previous
FROM chargehand_entries AS e
LEFT JOIN chargehand_entries AS p ON p.stream = e.stream AND p.seq = e.seq - 1
WHERE e.stream = $1 AND e.seq = ANY($2::bigint[]);
