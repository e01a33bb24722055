//! Databases that are killed with their mount: what they had acknowledged is there.

use crate::bed::run;

/// A database that was killed with its mount has what it had acknowledged.
#[test]
fn a_database_survives_its_mount() {
    let script = r#"
"$xebec" mkfs -q image --size 300m
for round in 1 2 3; do
    "$xebec" mount image mnt
    server=$("$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/')
    sqlite3 mnt/data.db 'pragma journal_mode=wal; create table if not exists t(n integer primary key)' > said
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
    run("a_database_survives_its_mount", &["sqlite3"], script);
}

/// PostgreSQL: `as` runs a program as its user, `start` and `stop` the server.
const POSTGRESQL: &str = r#"
everybody
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
mkdir socket && chown postgres socket
# As the database's user, who must not be root.
cat > as << END
#!/bin/sh
exec setpriv --reuid postgres --regid postgres --init-groups env -i PATH="$bin:$PATH" LC_ALL=C HOME=/ \
    PGHOST=$PWD/socket PGDATABASE=postgres PGDATA=$PWD/mnt/data "\$@"
END
chmod 755 as
as() { ./as "$@"; }
start() { # where it is the first process, so that all of its processes go when it is killed
    unshare --pid --fork --kill-child ./as postgres > log 2>&1 & database=$!
    for n in $(seq 600); do as pg_isready -q && return; sleep 0.05; done
    cat log; fail "PostgreSQL does not start"
}
stop() {
    kill -INT $(cat /proc/$database/task/$database/children)
    wait $database || { cat log; fail "PostgreSQL ends with $?"; }
    as pg_checksums --check > said 2>&1 || fail "a page is damaged"
}
"#;

/// Rounds of work, of which each ends by a kill. Two writers note what was acknowledged, and pgbench has transactions
/// that touch four tables each; there are checkpoints on the way.
const ROUNDS: &str = r#"
: > acknowledged
for round in 1 2 3; do
    "$xebec" mount -o allow_other image mnt
    server=$("$xebec" status --json mnt | sed 's/.*"process":\([0-9]*\).*/\1/')
    start
    as pgbench -n -c 2 -T 600 > pgbench.said 2>&1 & pgbench=$!
    # A writer ends with its first error, so that it notes nothing which was not acknowledged.
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
    # It may have ended by itself, as it could not write.
    { kill -9 $database && wait $database; } 2> /dev/null || true
    umount -l mnt
    sed -n 's/^done \([0-9]*\) \([0-9]*\)$/\1|\2/p' done.1 done.2 >> acknowledged
    [ "$(wc -l < acknowledged)" -ge $((round * 150)) ] || fail "round $round: the writers did not get far"

    "$xebec" mount -o allow_other image mnt
    start
    as psql -qAt -c 'select writer, n from ledger' > there
    sort acknowledged > wanted && sort there > found
    [ -z "$(comm -23 wanted found)" ] || fail "round $round: gone: $(comm -23 wanted found | head -n 3)"
    sums=$(as psql -qAt -c 'select count(distinct sum) from (select sum(abalance) from pgbench_accounts
        union all select sum(bbalance) from pgbench_branches union all select sum(tbalance) from pgbench_tellers
        union all select sum(delta) from pgbench_history) as sums')
    [ "$sums" = 1 ] || fail "round $round: a transaction was done in part"
    as pg_amcheck --install-missing --heapallindexed --schema=public > said 2>&1 || fail "round $round: pg_amcheck"
    stop
    "$xebec" umount mnt
    judge image "round $round, after PostgreSQL"
done
"#;

#[test]
fn postgresql_survives_its_mount() {
    let script = r#"
"$xebec" mkfs -q image --size 800m
"$xebec" mount -o allow_other image mnt
mkdir mnt/data && chown postgres mnt/data
as initdb --data-checksums --auth=trust --encoding=UTF8 --no-locale --wal-segsize=4 > said 2>&1 || fail initdb
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
as pgbench -q -i > said 2>&1 || fail "pgbench -i"
stop
"$xebec" umount mnt
"#;
    let script = [POSTGRESQL, script, ROUNDS].concat();
    run("postgresql_survives_its_mount", &["psql", "pg_ctlcluster", "setpriv"], &script);
}
