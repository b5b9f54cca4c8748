-- The tables of boards, and every query that is asked of them. They are made with the first board
-- of a journal, and hold nothing that its entries do not: only where in a stream to look.

-- name: boards
-- Make the tables.
-- facets: one row for each thing a note can be found by; a facet is a digest of board and word.
CREATE TABLE facets (
    facet INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    importance REAL NOT NULL,
    PRIMARY KEY (facet, seq)
) STRICT, WITHOUT ROWID;
-- ranks: the same by importance, for the segments and for the board as a whole. Not for every tag:
-- each note would then touch as many pages as it has tags, and a full board be half as fast.
CREATE TABLE ranks (
    facet INTEGER NOT NULL,
    importance REAL NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (facet, importance, seq)
) STRICT, WITHOUT ROWID;
-- blocks: where each version of a block stands in its stream.
CREATE TABLE blocks (
    stream INTEGER NOT NULL,
    label TEXT NOT NULL,
    version INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (stream, label, version)
) STRICT, WITHOUT ROWID;
-- guards: who may touch a block.
CREATE TABLE guards (
    stream INTEGER NOT NULL,
    label TEXT NOT NULL,
    guard BLOB NOT NULL,
    seal BLOB NOT NULL,
    PRIMARY KEY (stream, label)
) STRICT, WITHOUT ROWID;

-- name: has_boards
-- Whether these tables were made.
SELECT count(*) FROM sqlite_schema WHERE name = 'facets';

-- name: fresh
-- Make the tables for the newest notes. On a large board each row of `facets` and `ranks` lies on a page
-- of its own, so that a few notes would touch hundreds. Here they touch the same few pages, and are
-- moved to their places many at a time.
CREATE TABLE fresh_facets (
    facet INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    importance REAL NOT NULL,
    PRIMARY KEY (facet, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE fresh_ranks (
    facet INTEGER NOT NULL,
    importance REAL NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (facet, importance, seq)
) STRICT, WITHOUT ROWID;

-- name: has_fresh
-- Whether these were made: journals of an earlier day have none.
SELECT count(*) FROM sqlite_schema WHERE name = 'fresh_facets';

-- name: move_fresh
-- Move the newest notes to their places.
INSERT INTO facets SELECT facet, seq, importance FROM fresh_facets;
INSERT INTO ranks SELECT facet, importance, seq FROM fresh_ranks;
DELETE FROM fresh_facets;
DELETE FROM fresh_ranks;

-- name: add_facet
-- Let a note be found; widened to many rows by `sql_queries.BULK_INSERTS`.
INSERT INTO facets VALUES (?, ?, ?);

-- name: add_rank
-- Let a note be found by its importance; widened likewise.
INSERT INTO ranks VALUES (?, ?, ?);

-- name: add_fresh_facet
-- The same, where the newest notes are.
INSERT INTO fresh_facets VALUES (?, ?, ?);

-- name: add_fresh_rank
-- The same, where the newest notes are.
INSERT INTO fresh_ranks VALUES (?, ?, ?);

-- name: drop_facet
-- Forget one thing that a note was found by.
DELETE FROM facets WHERE facet = ? AND seq = ?;

-- name: drop_rank
-- Forget how important a note was.
DELETE FROM ranks WHERE facet = ? AND importance = ? AND seq = ?;

-- name: count_facet
-- How many notes a facet has, counted no further than a limit.
SELECT count(*) FROM (SELECT 1 FROM facets WHERE facet = ? LIMIT ?);

-- name: count_rank
-- How many notes of this importance or more there are, counted no further than a limit.
SELECT count(*) FROM (SELECT 1 FROM ranks WHERE facet = ? AND importance >= ? LIMIT ?);

-- name: reach
-- How far back one must go in a facet for so many notes; the further, the rarer it is.
SELECT seq FROM facets WHERE facet = ? ORDER BY seq DESC LIMIT 1 OFFSET ?;

-- name: by_facet
-- The notes of a facet. Conditions and an order follow.
SELECT d.seq, d.importance FROM facets AS d WHERE d.facet = ? AND d.importance >= ?

-- name: by_rank
-- The notes of a segment, or all, by importance. Conditions and an order follow.
SELECT d.seq, d.importance FROM ranks AS d WHERE d.facet = ? AND d.importance >= ?

-- name: also_in
-- A further condition: the note has one of these facets, too.
AND EXISTS (
    SELECT 1 FROM facets AS f
    WHERE f.facet IN (SELECT value FROM json_each(?)) AND f.seq = d.seq
)

-- name: not_in
-- A further condition: the note does not have this facet.
AND NOT EXISTS (SELECT 1 FROM facets AS f WHERE f.facet = ? AND f.seq = d.seq)

-- name: newest_notes
-- The order and number of what was asked for.
ORDER BY d.seq DESC LIMIT ?

-- name: important_notes
-- The order and number of what was asked for.
ORDER BY d.importance DESC, d.seq DESC LIMIT ?

-- name: board_entry
-- One event of a board, with the hash before it.
SELECT e.seq, e.epoch, e.kind, e.version, e.at, e.author, e.payload, e.hash, p.hash
FROM entries AS e LEFT JOIN entries AS p ON p.stream = e.stream AND p.seq = e.seq - 1
WHERE e.stream = ? AND e.seq IN (SELECT value FROM json_each(?));

-- name: newest_block
-- Where the newest version of a block stands.
SELECT stream, label, version, seq, seal FROM blocks
WHERE stream = ? AND label = ? ORDER BY version DESC LIMIT 1;

-- name: boards_kept
-- The streams of all boards that were not deleted.
SELECT name FROM streams WHERE name >= 'board:' AND name < 'board;' AND NOT forgotten ORDER BY name;

-- name: block_version
-- Where one version of a block stands.
SELECT stream, label, version, seq, seal FROM blocks
WHERE stream = ? AND label = ? AND version = ?;

-- name: add_block
-- Note where a new version of a block stands.
INSERT INTO blocks VALUES (?, ?, ?, ?, ?);

-- name: guard
-- Who may touch a block.
SELECT stream, label, guard, seal FROM guards WHERE stream = ? AND label = ?;

-- name: put_guard
-- Note who may touch a block.
REPLACE INTO guards VALUES (?, ?, ?, ?);

-- name: block_labels
-- All blocks of a board that were written or guarded. Bind the stream twice.
SELECT label FROM blocks WHERE stream = ? AND version = 1
UNION SELECT label FROM guards WHERE stream = ? ORDER BY label;

-- name: drop_blocks
-- Forget where the blocks of a board stand.
DELETE FROM blocks WHERE stream = ?;

-- name: drop_guards
-- Forget who may touch the blocks of a board.
DELETE FROM guards WHERE stream = ?;

-- name: board_payload
-- What one event of a board says.
SELECT payload, version FROM entries WHERE stream = ? AND seq = ?;

-- name: board_payloads
-- What the events of a board that come before a number say; without one, all.
SELECT seq, payload, version FROM entries
WHERE stream = ?1 AND (?2 IS NULL OR seq < ?2) ORDER BY seq;
