# SPDX-License-Identifier: Apache-2.0
"""`magnetar bookkeeper …`: the storage shell, with BookKeeper's names for its commands and flags.

Assembles.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from magnetar.cli import bookkeeper_offline as offline
from magnetar.cli import bookkeeper_shell as shell
from magnetar.cli.bookkeeper_shell import Shell, run_shell

app = typer.Typer(help="The storage shell: ledgers, bookies, repairs.", no_args_is_help=True)

Metadata = Annotated[
    str, typer.Option(envvar="MAGNETAR_METADATA_STORE_URL", help="remote:HOST:PORT or zk:HOST:PORT/CHROOT.")
]
LedgerId = Annotated[int, typer.Option("-l", "--ledgerid", help="The ledger.", min=0)]
DataDir = Annotated[str, typer.Option(help="Where the bookie keeps journal and entries.")]
Enable = Annotated[bool, typer.Option("--enable", "-e")]
Disable = Annotated[bool, typer.Option("--disable", "-d")]
Config = Annotated[list[str] | None, typer.Option(help="A BookKeeper configuration file; may be repeated.")]
CookieFile = Annotated[str, typer.Option("--cookie-file", "-cf", help="A file that cookie_generate wrote.")]
BookieId = Annotated[str, typer.Option("-b", "--bookieid", help="The bookie.")]


def _run(metadata: str, command: Callable[[Shell], Awaitable[None]]) -> None:
    raise typer.Exit(run_shell(metadata, command, typer.echo))


def with_two_dashes(words: Sequence[str]) -> list[str]:
    """The words as typed, long names by two dashes: BookKeeper's shell takes `-firstentryid` as `--firstentryid`."""
    command = typer.main.get_command(app)
    commands = getattr(command, "commands", {})
    chosen = commands.get(words[0]) if words else None
    known = {name for each in (chosen.params if chosen else ()) for name in each.opts}

    def spelt(word: str) -> str:
        name, equals, value = word.partition("=")
        is_long = name.startswith("-") and name not in known and f"-{name}" in known
        return f"-{name}{equals}{value}" if is_long else word

    return [spelt(word) for word in words]


def _switched(enable: bool, disable: bool) -> bool | None:
    """On, off, or None: only say which."""
    if enable and disable:
        raise typer.BadParameter("--enable and --disable exclude each other")
    return True if enable else False if disable else None


@app.command()
def listbookies(
    metadata: Metadata,
    readwrite: Annotated[bool, typer.Option("--readwrite", "-rw", help="Bookies that take adds.")] = False,
    readonly: Annotated[bool, typer.Option("--readonly", "-ro", help="Bookies that do not.")] = False,
    known: Annotated[bool, typer.Option("--all", "-a", help="All that have a cookie.")] = False,
) -> None:
    """List bookies."""
    nothing = not (readwrite or readonly or known)
    _run(metadata, lambda s: shell.list_bookies(s, writable=readwrite or nothing, read_only=readonly, known=known))


@app.command()
def listledgers(
    metadata: Metadata,
    meta: Annotated[bool, typer.Option("--meta", "-m", help="With each ledger's metadata.")] = False,
    bookieid: Annotated[str | None, typer.Option("--bookieid", help="Only those on this bookie.")] = None,
) -> None:
    """List ledgers."""
    _run(metadata, lambda s: shell.list_ledgers(s, with_metadata=meta, bookie=bookieid))


@app.command()
def ledgermetadata(metadata: Metadata, ledgerid: LedgerId) -> None:
    """Print a ledger's metadata."""
    _run(metadata, lambda s: shell.ledger_metadata(s, ledgerid))


@app.command()
def readledger(
    metadata: Metadata,
    ledgerid: LedgerId,
    first: Annotated[int, typer.Option("--firstentryid", "-fe", min=0)] = 0,
    last: Annotated[int | None, typer.Option("--lastentryid", "-le", min=-1)] = None,
    msg: Annotated[bool, typer.Option("--msg", "-m", help="With each entry's bytes.")] = False,
) -> None:
    """Read a range of a ledger's entries."""
    _run(metadata, lambda s: shell.read_ledger(s, ledgerid, first, last, with_body=msg))


@app.command()
def simpletest(
    metadata: Metadata,
    ensemble: Annotated[int, typer.Option("--ensemble", "-e", min=1)] = 3,
    write_quorum: Annotated[int, typer.Option("--writeQuorum", "-w", min=1)] = 2,
    ack_quorum: Annotated[int, typer.Option("--ackQuorum", "-a", min=1)] = 2,
    entries: Annotated[int, typer.Option("--numEntries", "-n", min=1)] = 1000,
) -> None:
    """Write a ledger, read it back and delete it."""
    _run(metadata, lambda s: shell.simple_test(s, ensemble, write_quorum, ack_quorum, entries))


@app.command()
def bookiesanity(
    metadata: Metadata,
    bookieid: BookieId,
    entries: Annotated[int, typer.Option("--entries", "-e", min=1)] = 10,
) -> None:
    """Write and read a ledger on one bookie alone."""
    _run(metadata, lambda s: shell.bookie_sanity(s, bookieid, entries))


@app.command()
def recover(
    metadata: Metadata,
    bookie: Annotated[str, typer.Argument(help="The lost bookie.")],
    dryrun: Annotated[
        bool, typer.Option("--dryrun", "-dr", "--query", "-q", help="Only say what would be moved.")
    ] = False,
    ledger: Annotated[int | None, typer.Option("--ledger", "-l", min=0, help="Only this ledger.")] = None,
    skip_open: Annotated[
        bool, typer.Option("--skipOpenLedgers", "-sk", help="Leave ledgers that are still written.")
    ] = False,
    delete_cookie: Annotated[bool, typer.Option("--deleteCookie", "-d", help="Forget its cookie afterwards.")] = False,
    force: Annotated[bool, typer.Option("--force", "-f", help="Even though it runs.")] = False,
) -> None:
    """Copy what a lost bookie held to others."""
    wanted = shell.Recovered(ledger, dry_run=dryrun, skip_open=skip_open, delete_cookie=delete_cookie, force=force)
    _run(metadata, lambda s: shell.recover(s, bookie, wanted))


@app.command()
def decommissionbookie(metadata: Metadata, bookieid: BookieId) -> None:
    """Move everything off a stopped bookie, then forget it."""
    _run(metadata, lambda s: shell.decommission(s, bookieid))


@app.command("cookie_get")
def cookie_get(metadata: Metadata, bookie: Annotated[str, typer.Argument()]) -> None:
    """Print a bookie's cookie."""
    _run(metadata, lambda s: shell.cookie_show(s, bookie))


@app.command("cookie_generate")
def cookie_generate(
    metadata: Metadata,
    bookie: Annotated[str, typer.Argument()],
    output: Annotated[str, typer.Option("--output-file", "-o", help="Where to write it.")],
    journal_dirs: Annotated[str, typer.Option("--journal-dirs", "-j", help="With commas between.")] = "journal",
    ledger_dirs: Annotated[str, typer.Option("--ledger-dirs", "-l", help="With commas between.")] = "ledgers",
) -> None:
    """Write a bookie's cookie to a file."""
    journals, ledgers = tuple(journal_dirs.split(",")), tuple(ledger_dirs.split(","))
    _run(metadata, lambda s: offline.cookie_generate(s, bookie, journals, ledgers, output))


@app.command("cookie_create")
def cookie_create(metadata: Metadata, bookie: Annotated[str, typer.Argument()], cookie_file: CookieFile) -> None:
    """Register a bookie's cookie from a file."""
    _run(metadata, lambda s: offline.cookie_create(s, bookie, cookie_file))


@app.command("cookie_update")
def cookie_update(metadata: Metadata, bookie: Annotated[str, typer.Argument()], cookie_file: CookieFile) -> None:
    """Replace a bookie's cookie by one from a file."""
    _run(metadata, lambda s: offline.cookie_update(s, bookie, cookie_file))


@app.command("cookie_delete")
def cookie_delete(
    metadata: Metadata,
    bookie: Annotated[str, typer.Argument()],
    force: Annotated[bool, typer.Option("--force", "-f", help="Do not ask.")] = False,
) -> None:
    """Delete a bookie's cookie: it may start with empty directories afterwards."""
    if not force:
        typer.confirm(f"Entries that only {bookie} holds are lost if it starts empty. Delete its cookie?", abort=True)
    _run(metadata, lambda s: shell.cookie_delete(s, bookie))


@app.command()
def bookieinfo(metadata: Metadata) -> None:
    """Print the space of each bookie and of all."""
    _run(metadata, shell.bookie_info)


@app.command()
def triggeraudit(metadata: Metadata) -> None:
    """Have the auditor look at once for ledgers that lack a copy."""
    _run(metadata, shell.trigger_audit)


@app.command("rebuild-db-ledgers-index")
def rebuild_index(data_dir: DataDir = "data", config: Config = None) -> None:
    """Rebuild the index of a stopped bookie from its entry logs."""
    offline.rebuild(data_dir, tuple(config or ()), typer.echo)


@app.command("rebuild-db-ledger-locations-index")
def rebuild_locations_index(data_dir: DataDir = "data", config: Config = None) -> None:
    """The same: one index holds both."""
    offline.rebuild(data_dir, tuple(config or ()), typer.echo)


@app.command()
def localconsistencycheck(data_dir: DataDir = "data", config: Config = None) -> None:
    """Read every entry of a stopped bookie that its index names."""
    raise typer.Exit(int(not offline.consistency_check(data_dir, tuple(config or ()), typer.echo)))


@app.command()
def whoisauditor(metadata: Metadata) -> None:
    """Say which bookie audits."""
    _run(metadata, shell.who_is_auditor)


@app.command()
def listunderreplicated(
    metadata: Metadata,
    missing: Annotated[str | None, typer.Option("--missingreplica", "-mr", help="On this bookie.")] = None,
    excluding: Annotated[str | None, typer.Option("--excludingmissingreplica", "-emr", help="Not on this one.")] = None,
) -> None:
    """List ledgers that lack a copy."""
    _run(metadata, lambda s: shell.list_under_replicated(s, missing, excluding))


@app.command()
def lostbookierecoverydelay(
    metadata: Metadata,
    get: Annotated[bool, typer.Option("--get", "-g")] = False,
    set_s: Annotated[int | None, typer.Option("--set", "-s", min=0, help="Seconds.")] = None,
) -> None:
    """How long a lost bookie is waited for before its ledgers are copied."""
    _run(metadata, lambda s: shell.lost_bookie_delay(s, None if get else set_s))


@app.command()
def autorecovery(metadata: Metadata, enable: Enable = False, disable: Disable = False) -> None:
    """Switch repairs on or off, or say which."""
    wanted = _switched(enable, disable)
    _run(metadata, lambda s: shell.autorecovery(s, wanted))


@app.command()
def healthcheck(metadata: Metadata, enable: Enable = False, disable: Disable = False) -> None:
    """Whether brokers set bookies aside that fail: switch it off for a rolling upgrade of bookies, or say which."""
    wanted = _switched(enable, disable)
    _run(metadata, lambda s: shell.health_check(s, wanted))


@app.command()
def metaformat(
    metadata: Metadata,
    force: Annotated[bool, typer.Option("--force", "-f", help="Do not ask.")] = False,
) -> None:
    """Forget every ledger and bookie."""
    if not force:
        typer.confirm(f"Every ledger in {metadata} and all that it holds is lost. Format?", abort=True)
    _run(metadata, shell.format_metadata)
