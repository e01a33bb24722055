//! Databases that are killed with the mount: acknowledged changes must be present afterwards.

use crate::scripts::run;

#[test]
fn sqlite_keeps_acknowledged_rows() {
    let script = r#"
"$xebec" mkfs -q image --size 300m
for round in 1 2 3; do
    "$xebec" mount image mnt
    server=$("$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/')
    sqlite3 mnt/data.db 'pragma journal_mode=wal; create table if not exists t(n integer primary key)' > output
    (for n in $(seq $((round * 1000)) $((round * 1000 + 400))); do
        echo "insert into t values($n); select 'done $n';"
    done | sqlite3 -cmd 'pragma synchronous=full' mnt/data.db > done.$round 2> /dev/null) & writer=$!
    while [ "$(wc -l < done.$round)" -lt $((round * 40)) ]; do sleep 0.02; done
    kill -9 $server
    wait $writer || true
    umount -l mnt 2> /dev/null || true
    "$xebec" mount image mnt
    [ "$(sqlite3 mnt/data.db 'pragma integrity_check')" = ok ] || fail "the database is damaged"
    cat done.* | sed -n 's/^done //p' | sort -n > acknowledged
    sqlite3 mnt/data.db 'select n from t' | sort -n > there
    [ -z "$(comm -23 <(sort acknowledged) <(sort there))" ] || fail "round $round: an acknowledged row is gone"
    "$xebec" umount mnt
    judge image "after the database"
done
"#;
    run("sqlite_keeps_acknowledged_rows", &["sqlite3"], script);
}

/// Shell functions for PostgreSQL: `as` runs a program as its user, `start` and `stop` control the server.
const POSTGRESQL: &str = r#"
everybody
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
mkdir socket && chown postgres socket
# PostgreSQL refuses to run as root.
cat > as << END
#!/bin/sh
exec setpriv --reuid postgres --regid postgres --init-groups env -i PATH="$bin:$PATH" LC_ALL=C HOME=/ \
    PGHOST=$PWD/socket PGDATABASE=postgres PGDATA=$PWD/mnt/data "\$@"
END
chmod 755 as
as() { ./as "$@"; }
start() { # as the first process of a PID namespace, so that all of its processes are killed with it
    unshare --pid --fork --kill-child ./as postgres > log 2>&1 & database=$!
    for n in $(seq 600); do as pg_isready -q && return; sleep 0.05; done
    cat log; fail "PostgreSQL does not start"
}
stop() {
    kill -INT $(cat /proc/$database/task/$database/children)
    wait $database || { cat log; fail "PostgreSQL ends with $?"; }
    as pg_checksums --check > output 2>&1 || fail "a page is damaged"
}
"#;

/// Rounds that each end with a kill. Two writers record acknowledged rows, and pgbench runs transactions on four
/// tables, with checkpoints in between.
const ROUNDS: &str = r#"
: > acknowledged
for round in 1 2 3; do
    "$xebec" mount -o allow_other image mnt
    server=$("$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/')
    start
    as pgbench -n -c 2 -T 600 > pgbench.output 2>&1 & pgbench=$!
    # A writer ends at its first error, so that it records only acknowledged rows.
    writers=
    for writer in 1 2; do
        : > done.$writer
        for n in $(seq $((round * 100000)) $((round * 100000 + 50000))); do
            echo "insert into ledger values($writer, $n, repeat('x', $n % 3000));"
            echo "\\echo done $writer $n"
        done | as psql -qAt -v ON_ERROR_STOP=1 > done.$writer 2> /dev/null & writers="$writers $!"
    done
    for n in $(seq 3000); do
        [ "$(cat done.1 done.2 | wc -l)" -lt $((round * 150)) ] || break
        sleep 0.02
    done
    sleep 1.$((round * 3))
    kill -9 $server
    wait $writers $pgbench || true
    # It may have ended because it could not write.
    { kill -9 $database && wait $database; } 2> /dev/null || true
    umount -l mnt
    sed -n 's/^done \([0-9]*\) \([0-9]*\)$/\1|\2/p' done.1 done.2 >> acknowledged
    [ "$(wc -l < acknowledged)" -ge $((round * 150)) ] || fail "round $round: too few rows were written"

    "$xebec" mount -o allow_other image mnt
    start
    as psql -qAt -c 'select writer, n from ledger' > there
    sort acknowledged > wanted && sort there > found
    [ -z "$(comm -23 wanted found)" ] || fail "round $round: gone: $(comm -23 wanted found | head -n 3)"
    sums=$(as psql -qAt -c 'select count(distinct sum) from (select sum(abalance) from pgbench_accounts
        union all select sum(bbalance) from pgbench_branches union all select sum(tbalance) from pgbench_tellers
        union all select sum(delta) from pgbench_history) as sums')
    [ "$sums" = 1 ] || fail "round $round: a transaction was done in part"
    as pg_amcheck --install-missing --heapallindexed --schema=public > output 2>&1 || fail "round $round: pg_amcheck"
    stop
    "$xebec" umount mnt
    judge image "round $round, after PostgreSQL"
done
"#;

#[test]
fn postgresql_keeps_acknowledged_rows() {
    let script = r#"
"$xebec" mkfs -q image --size 800m
"$xebec" mount -o allow_other image mnt
mkdir mnt/data && chown postgres mnt/data
as initdb --data-checksums --auth=trust --encoding=UTF8 --no-locale --wal-segsize=4 > output 2>&1 || fail initdb
cat >> mnt/data/postgresql.conf << END
listen_addresses = ''
unix_socket_directories = '$PWD/socket'
shared_buffers = 16MB
min_wal_size = 8MB
max_wal_size = 16MB
autovacuum_naptime = 1s
END
start
as psql -q -c 'create table ledger(writer int, n int, what text, primary key (writer, n))'
as pgbench -q -i > output 2>&1 || fail "pgbench -i"
stop
"$xebec" umount mnt
"#;
    let script = [POSTGRESQL, script, ROUNDS].concat();
    run("postgresql_keeps_acknowledged_rows", &["psql", "pg_ctlcluster", "setpriv"], &script);
}
