-- The tables of format 6. A program of an earlier format may go on: what it deletes has a number and
-- no marks, which whoever makes keys takes for a deletion of any of them.

-- The marks of keys that were deleted of late, each time with the number of the deletion before. It
-- is about transactions under way, of which a crash leaves none.
CREATE UNLOGGED TABLE gone (
    number bigint PRIMARY KEY,
    before bigint NOT NULL,
    keys   bigint[] NOT NULL
);
