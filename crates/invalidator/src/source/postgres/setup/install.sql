-- What a database needs so that its log carries or tells every change of the followed tables.
-- It may be run again: what is there stays, or is made anew.

BEGIN;

-- Without a replica identity, UPDATE and DELETE of a table fail as soon as it is published.
DO $$ DECLARE
    unfit text;
BEGIN
    -- The names of slots are global to the server.
    SELECT database INTO unfit FROM pg_catalog.pg_replication_slots
    WHERE slot_name = @slot@ AND database <> current_database();
    IF unfit IS NOT NULL THEN
        RAISE duplicate_object USING MESSAGE = 'slot ' || @slot@ || ' belongs to database ' || unfit
            || ': set source.slot to another name';
    END IF;
    SELECT pg_catalog.string_agg(DISTINCT c.oid::regclass::text, ', ') INTO unfit
    FROM pg_catalog.unnest(ARRAY[@published@]::text[]) wanted
    JOIN pg_catalog.pg_class c ON c.relkind = 'r' AND (c.oid = to_regclass(wanted)
        OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(to_regclass(wanted))))
    WHERE c.relreplident <> 'f' AND NOT EXISTS (
        SELECT FROM pg_catalog.pg_index WHERE indrelid = c.oid AND indisvalid AND indimmediate
        AND CASE c.relreplident WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident END);
    IF unfit IS NOT NULL THEN
        RAISE undefined_object USING MESSAGE = 'no replica identity, without which UPDATE and DELETE'
            || ' of a published table fail: add a primary key to each of these tables, or run'
            || ' ALTER TABLE .. REPLICA IDENTITY FULL: ' || unfit;
    END IF;
END $$;

DROP EVENT TRIGGER IF EXISTS @schema@;
DROP EVENT TRIGGER IF EXISTS @rewrite@;

DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = @publication_text@) THEN
        CREATE PUBLICATION @publication@ WITH (publish_via_partition_root = true);
        COMMENT ON PUBLICATION @publication@ IS @mark@;
    END IF;
END $$;

@canary@
-- The tables that are published.
DO $$ DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY[@published@]::text[] LOOP
        IF NOT EXISTS (
            SELECT FROM pg_catalog.pg_publication_tables WHERE pubname = @publication_text@
            AND pg_catalog.format('%I.%I', schemaname, tablename)::regclass IN (
                SELECT relid FROM pg_catalog.pg_partition_tree(wanted::regclass))
            UNION ALL
            SELECT FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p
            ON p.oid = r.prpubid WHERE p.pubname = @publication_text@ AND r.prrelid = wanted::regclass
        ) THEN
            EXECUTE pg_catalog.format('ALTER PUBLICATION %I ADD TABLE %s', @publication_text@, wanted);
        END IF;
    END LOOP;
END $$;

CREATE SCHEMA IF NOT EXISTS @schema@;

-- What the followed tables are made of, as the log's reader was last told.
DROP TABLE IF EXISTS @schema@.part;
CREATE TABLE @schema@.part (
    followed text NOT NULL,
    relid oid NOT NULL,
    kind text NOT NULL,
    number int NOT NULL,
    value text NOT NULL,
    name text NOT NULL,
    PRIMARY KEY (followed, kind, relid, number)
);

CREATE OR REPLACE FUNCTION @schema@.followed() RETURNS SETOF text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog AS $$
    SELECT unnest(ARRAY[@followed@]::text[])
$$;

-- What they are made of now: tables, columns, values of enums, attributes of composite types,
-- partitions with rows, tables that inherit from them, what is published of them, whether they are
-- logged, and which old values are.
CREATE OR REPLACE FUNCTION @schema@.parts()
RETURNS TABLE (followed text, relid oid, kind text, number int, value text, name text)
LANGUAGE sql STABLE SET search_path = pg_catalog AS $$
    WITH RECURSIVE root AS (
        SELECT f.name AS followed, c.oid AS relid FROM @schema@.followed() f (name)
        JOIN pg_namespace n ON n.nspname = split_part(f.name, '.', 1)
        JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = substr(f.name, length(n.nspname) + 2)
    ), leaf AS (
        SELECT root.followed, p.relid FROM root, pg_partition_tree(root.relid) p
        WHERE p.isleaf AND p.level > 0
    ), every AS (
        SELECT * FROM root UNION ALL SELECT * FROM leaf
    ), child AS (
        SELECT root.followed, inhrelid AS relid FROM root JOIN pg_class c ON c.oid = root.relid
        JOIN pg_inherits ON inhparent = root.relid WHERE relkind = 'r'
        UNION
        SELECT child.followed, inhrelid FROM child JOIN pg_inherits ON inhparent = child.relid
    ), made AS (
        -- The types that values of columns are made of.
        SELECT root.followed, root.relid, atttypid AS part FROM root
        JOIN pg_attribute ON attrelid = root.relid WHERE attnum > 0 AND NOT attisdropped
        UNION
        SELECT made.followed, made.relid, inner_type FROM made JOIN pg_type t ON t.oid = part, LATERAL (
            VALUES (t.typbasetype), (t.typelem)
            UNION ALL
            SELECT rngsubtype FROM pg_range WHERE t.oid IN (rngtypid, rngmultitypid)
            UNION ALL
            SELECT atttypid FROM pg_attribute
            WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped
        ) inner_types (inner_type) WHERE inner_type <> 0
    )
    SELECT followed, relid, 'table', 0, '', 'table ' || followed FROM root
    UNION ALL
    SELECT followed, relid, 'table', 0, '', 'partition ' || relid::regclass FROM leaf
    UNION ALL
    -- A new expression of a generated column changes the values, too.
    SELECT followed, attrelid, 'column', attnum, concat_ws(' ', attname,
        format_type(atttypid, atttypmod), (
            SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
            WHERE (adrelid, adnum) = (attrelid, attnum) AND attgenerated <> '')),
        'column ' || attname FROM root JOIN pg_attribute ON attrelid = relid
    WHERE attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT followed, relid, 'label', e.oid::int, enumlabel, 'value of type ' || enumtypid::regtype
    FROM made JOIN pg_enum e ON enumtypid = part
    UNION ALL
    -- One part for all attributes, as a new one changes the text of every value, too.
    SELECT followed, typrelid, 'type', 0, coalesce((
        SELECT string_agg(concat_ws(' ', attnum, attname, format_type(atttypid, atttypmod)), ', '
            ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = typrelid AND attnum > 0 AND NOT attisdropped), ''),
        'type ' || t.oid::regtype FROM made JOIN pg_type t ON t.oid = part WHERE typrelid <> 0
    UNION ALL
    -- Only one session sees the rows of a temporary table.
    SELECT followed, relid, 'child', 0, '', 'inheriting table ' || relid::regclass
    FROM child JOIN pg_class c ON c.oid = relid WHERE relpersistence <> 't'
    UNION ALL
    -- Its columns, as REINDEX CONCURRENTLY makes another index.
    SELECT followed, relid, 'identity', 0, relreplident::text || ' ' || coalesce((
        SELECT min((indkey::int2[])[0:indnkeyatts - 1]::text) FROM pg_index WHERE indrelid = c.oid
        AND CASE relreplident WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident END), ''),
        'replica identity of ' || relid::regclass FROM every JOIN pg_class c ON c.oid = relid
    UNION ALL
    SELECT followed, relid, 'log', 0, relpersistence::text, 'logging of ' || relid::regclass
    FROM every JOIN pg_class c ON c.oid = relid
    UNION ALL
    SELECT followed, relid, 'publication', 0,
        concat_ws(' ', pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot),
        'publication ' || pubname FROM root, pg_publication WHERE pubname = @publication_text@
    UNION ALL
    SELECT followed, relid, 'published', 0, concat_ws(' ', rowfilter, (
        SELECT string_agg(r.prattrs::text, ',') FROM pg_publication_rel r JOIN pg_publication p
        ON p.oid = r.prpubid AND p.pubname = t.pubname WHERE r.prrelid = relid
        OR r.prrelid IN (SELECT * FROM pg_partition_ancestors(relid)))),
        'publication of ' || relid::regclass FROM every JOIN pg_class ON oid = relid
    JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_publication_tables t
    ON (schemaname, tablename) = (n.nspname, relname) AND pubname = @publication_text@
$$;

-- Writes into the log that a table changed in a way that the log does not show.
CREATE OR REPLACE FUNCTION @schema@.say(followed text, what text) RETURNS void
LANGUAGE sql SET search_path = pg_catalog AS $$
    SELECT pg_logical_emit_message(true, @prefix@, followed || E'\n' || what)
$$;

CREATE OR REPLACE FUNCTION @schema@.tell_truncate() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    PERFORM @schema@.say(p.followed, 'TRUNCATE ' || tg_relid::regclass)
    FROM @schema@.part p WHERE p.relid = tg_relid AND p.kind = 'table';
    RETURN NULL;
END $$;

-- Where whole tables are published, the log has nothing of a partition that is emptied. The trigger
-- fires in every session, and one that was disabled is enabled again.
CREATE OR REPLACE FUNCTION @schema@.watch_partitions() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
DECLARE
    leaf regclass;
BEGIN
    FOR leaf IN SELECT DISTINCT p.relid FROM @schema@.part p JOIN pg_class c ON c.oid = p.relid
        WHERE p.kind = 'table' AND c.relispartition AND NOT EXISTS (
            SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = @schema_text@
            AND t.tgenabled = 'A')
    LOOP
        -- While this row is there, the statements below are told by nobody.
        INSERT INTO @schema@.part VALUES ('', leaf, 'busy', 0, '', '');
        IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = leaf AND tgname = @schema_text@) THEN
            EXECUTE format('CREATE TRIGGER %I AFTER TRUNCATE ON %s FOR EACH STATEMENT '
                'EXECUTE FUNCTION %1$I.tell_truncate()', @schema_text@, leaf);
        END IF;
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', leaf, @schema_text@);
        DELETE FROM @schema@.part WHERE kind = 'busy' AND relid = leaf;
    END LOOP;
END $$;

-- It fails no statement: what it cannot compare, it tells as a change of every table.
CREATE OR REPLACE FUNCTION @schema@.tell() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
BEGIN
    IF tg_event = 'table_rewrite' THEN
        -- 4: the type of a column is changed, and its values perhaps. 2: values are computed anew,
        -- those of a generated column that was there before, or else of a new column.
        PERFORM @schema@.say(p.followed, tg_tag || ': values of a column are rewritten')
        FROM @schema@.part p WHERE p.relid = pg_event_trigger_table_rewrite_oid()
        AND p.kind = 'table' AND (pg_event_trigger_table_rewrite_reason() & 4 > 0
            OR pg_event_trigger_table_rewrite_reason() & 2 > 0 AND EXISTS (
                SELECT FROM pg_attribute JOIN @schema@.part c ON c.followed = p.followed
                AND c.kind = 'column' AND starts_with(c.value, attname || ' ')
                WHERE attrelid = p.relid AND attgenerated = 's'));
        RETURN;
    END IF;
    -- It comes of this function.
    IF EXISTS (SELECT FROM @schema@.part WHERE kind = 'busy') THEN
        RETURN;
    END IF;
    -- New parts are harmless, but for what is published of a table that was there before, for a
    -- partition that is not logged, for one that has come with its rows, and for a table that
    -- inherits. The partition's size is asked for, as this transaction may not see its rows.
    PERFORM @schema@.say(lost.followed, tg_tag || ': ' || lost.name || ' is not what it was') FROM (
        SELECT followed, (array_agg(coalesce(o.name, n.name) ORDER BY kind = 'table' DESC, number))[1] AS name
        FROM @schema@.part o FULL JOIN @schema@.parts() n USING (followed, kind, relid, number)
        WHERE o.value IS DISTINCT FROM n.value AND (o.value IS NOT NULL
            OR kind = 'child'
            OR kind = 'log' AND n.value <> 'p'
            OR kind = 'table' AND pg_relation_size(n.relid) > 0
                AND (SELECT relispartition FROM pg_class WHERE oid = n.relid)
            OR kind IN ('identity', 'publication', 'published') AND EXISTS (
                SELECT FROM @schema@.part t WHERE (t.followed, t.relid, t.kind)
                    = (n.followed, n.relid, 'table')))
        GROUP BY 1) lost;
    DELETE FROM @schema@.part o WHERE NOT EXISTS (
        SELECT FROM @schema@.parts() n WHERE
            (n.followed, n.kind, n.relid, n.number, n.value)
            = (o.followed, o.kind, o.relid, o.number, o.value));
    INSERT INTO @schema@.part SELECT * FROM @schema@.parts() ON CONFLICT DO NOTHING;
    PERFORM @schema@.watch_partitions();
EXCEPTION WHEN OTHERS THEN
    PERFORM @schema@.say(name, tg_tag || ': tables cannot be compared: ' || sqlerrm)
    FROM @schema@.followed() name;
END $$;

INSERT INTO @schema@.part SELECT * FROM @schema@.parts();
SELECT @schema@.watch_partitions();

CREATE EVENT TRIGGER @schema@ ON ddl_command_end EXECUTE FUNCTION @schema@.tell();
CREATE EVENT TRIGGER @rewrite@ ON table_rewrite EXECUTE FUNCTION @schema@.tell();
ALTER EVENT TRIGGER @schema@ ENABLE ALWAYS;
ALTER EVENT TRIGGER @rewrite@ ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER @schema@ IS @told@;

COMMIT;

DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = @slot@) THEN
        RETURN;
    END IF;
    IF current_setting('synchronized_standby_slots', true) <> '' THEN
        -- Standbys that synchronize slots have it, too, and go on with it when they are promoted.
        -- They have all that the invalidator has read.
        PERFORM pg_catalog.pg_create_logical_replication_slot(@slot@, 'pgoutput', failover => true);
    ELSE
        PERFORM pg_catalog.pg_create_logical_replication_slot(@slot@, 'pgoutput');
    END IF;
END $$;
