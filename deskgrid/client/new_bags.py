"""Makes the bags of a Grid: what all their tasks share, what each of them has, and the files that travel with them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from deskgrid.client.bag import Bag
from deskgrid.client.bag_files import BagFiles, KnownFiles, command_files, new_bag_id
from deskgrid.client.carried import ROWS_SEARCHED, Carried, CarriedEnvironments, modules_of_types, reached_by_command
from deskgrid.client.empty_bag import EmptyBag
from deskgrid.client.link import Link
from deskgrid.client.options import BagKeywords
from deskgrid.client.payload import pack_text
from deskgrid.client.probing import checked_probes
from deskgrid.client.submission import Runtime, SubmittedTask, kept, submit_bag
from deskgrid.client.task import Task
from deskgrid.client.template import PYTHON, Template, checked_argv, command_template, name_of, pickle_function
from deskgrid.errors import BagRejected
from deskgrid.wire import NAME_BYTES, Environment, Kind, Payload, TaskOptions, cut

if TYPE_CHECKING:
    from deskgrid.client.environments.asked import Env


class NewBags:
    """``owner`` of a bag: the Grid, which has to live as long as it."""

    def __init__(self, link: Link, known_files: KnownFiles, environments: CarriedEnvironments) -> None:
        self._link = link
        self._known_files = known_files
        self._environments = environments

    def of_calls(
        self, job: Task[Any], items: Iterable[Any], runtime: Runtime, given: BagKeywords, owner: object
    ) -> Bag[Any, Any]:
        """Submit a bag with one call for each item."""
        label = name_of(job.function)
        files = self._files()
        pickled, inputs = files.common(lambda: pickle_function(job.function))
        carried = Carried(
            pickled,
            label,
            modules=job.modules,
            inputs=inputs,
            env=job.env,
            environments=self._environments,
            files=files,
        )
        held = kept(items)

        def template(rows: Sequence[SubmittedTask]) -> Template:
            named = modules_of_types(held or ())
            classes, inputs = files.classes()
            payloads = [row.payload for row in rows[:ROWS_SEARCHED]]
            return carried.template(payloads, files.functions(), named, classes, inputs)

        def pack(item: Any, what: str) -> Payload:
            payload = files.pack_call((item,), {}, what)
            carried.check(payload, what)
            return payload

        return self._submit(
            template,
            items if held is None else held,
            pack=pack,
            name=given.get("name") or label,
            runtime=job.runtime if runtime is None else runtime,
            options=replace(job.options, python=PYTHON),
            explore=bool(given.get("explore")),
            files=files,
            owner=owner,
        )

    def of_commands(
        self,
        argv: Sequence[str],
        items: Iterable[str],
        runtime: Runtime,
        options: TaskOptions,
        given: BagKeywords,
        *,
        env: "Env | None",
        saving: Mapping[str, object],
        inputs: Iterable[str | PathLike[str]],
        outputs: Sequence[str],
        owner: object,
    ) -> Bag[str, str]:
        """Submit a bag with one run of a command for each item. ``saving``: how it saves its state."""
        if isinstance(items, str | bytes):
            raise BagRejected(f"the items of a command are texts, such as [{items!r:.80}], not one text")
        files = self._files()
        trees, patterns = command_files(inputs, outputs)
        files.need(trees)
        environment = self._environment_of(argv, env, files)
        template = command_template(argv, b"".join([tree.digest for tree in trees]), patterns, saving, environment)
        return self._submit(
            lambda rows: template,
            items,
            pack=pack_text,
            name=given.get("name") or cut(argv[0], NAME_BYTES),
            runtime=runtime,
            options=options,
            explore=bool(given.get("explore")),
            files=files,
            owner=owner,
        )

    def _environment_of(self, argv: Sequence[str], wanted: "Env | None", files: BagFiles) -> Environment | None:
        """Bring the libraries of a command along."""
        if wanted is None:
            return None
        script, reached = reached_by_command(checked_argv(argv))
        if not script and (kinds := {"mine", "script"}.intersection(wanted)):
            raise BagRejected(
                f'"{kinds.pop()}" looks into the Python file that the command names, and it names no Python file here: '
                "name one, or list the libraries"
            )
        return self._environments.bring(wanted, None, reached, script, files)

    def _files(self) -> BagFiles:
        return BagFiles(self._link, self._known_files, new_bag_id())

    def _submit(
        self,
        template: Callable[[Sequence[SubmittedTask]], Template],
        items: Iterable[Any],
        *,
        pack: Callable[[Any, str], Payload],
        name: str,
        runtime: Runtime,
        options: TaskOptions,
        explore: bool,
        files: BagFiles,
        owner: object,
    ) -> Bag[Any, Any]:
        held = kept(items)
        if explore:
            held = tuple(items) if held is None else held
            options = replace(options, probes=checked_probes(held, options))
        bag, total, note = submit_bag(
            self._link,
            template,
            items if held is None else held,
            pack=pack,
            name=name,
            runtime=runtime,
            options=options,
            files=files,
        )
        kind: Kind = "command" if options.python is None else "python"
        made = Bag if total else EmptyBag
        return made(self._link, bag, name, total, items=held, note=note, kind=kind, owner=owner)
