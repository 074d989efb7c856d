"""Hold the state of a process that has imported the modules of a file, and may have run a program, for its targets."""

from __future__ import annotations

import ast
import builtins
import linecache
import os
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from types import ModuleType

from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from fx_lsp import files
from fx_lsp.model import ProgramFile, TraceRequest, WatchedFile, WorldRequest, WrittenInputs
from fx_lsp.syntax import edited_lines, parse_expression
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.inputs.evidence.command_line import flags_parsed
from fx_lsp.tracer.inputs.evidence.program_calls import is_absent
from fx_lsp.tracer.inputs.evidence.watch import CallWatch, FirstCall
from fx_lsp.tracer.inputs.plan.offer import Offer
from fx_lsp.tracer.program.absences import Absent, backward_of, with_numbers
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.program.installed import foreign_modules, package_files
from fx_lsp.tracer.program.load import Loaded, LoadError, forget_project, is_of_project, load, new_module
from fx_lsp.tracer.program.partial_imports import forget_stand_ins, stand_in_for
from fx_lsp.tracer.program.paths import insert_user_paths
from fx_lsp.tracer.program.reads import ReadState, reads, state_of, watch_reads
from fx_lsp.tracer.program.rewriting.edit import changed_functions, code_of_step, outermost_names
from fx_lsp.tracer.program.rewriting.instrument import Instrument
from fx_lsp.tracer.program.rewriting.script import imported, rehearsed
from fx_lsp.tracer.program.scratch import scratch_files
from fx_lsp.tracer.program.time_limit import TimeUp, time_limit
from fx_lsp.tracer.rehearsal.program_run import ProgramRun
from fx_lsp.tracer.source.provenance import Sources
from fx_lsp.tracer.world.import_graph import ImportGraph
from fx_lsp.tracer.world.surroundings import Surroundings, surroundings
from fx_lsp.training.step import BACKWARD

PROGRAM_SECONDS = 6.0
"""The time that a program may take to reach the calls of the targets."""
IMPORT_SECONDS = 20.0
"""The time that the imports of a file may take."""


LaterCall = tuple[str, int]
"""The arguments of a call, as in a `# fx:` comment, and the line of the program that makes it."""


class GpuWanted(BaseException):
    """Unwinds a program that needs a GPU for some tensors and was told that there is none."""


@dataclass
class World:
    """Hold the state of one process.

    `before` are the modules that were imported before any code of the user. `program` has run up to the `call` of a
    target, or to its end; without a program, `loaded` is a file that was imported. `missing` is the import error of the
    first package that is missing. `since` are the modules that were imported when the process was given to a request;
    if it `is_entered`, the request is answered with this state. `edits` are later texts of files. `ran` are functions
    of the target's file that ran in other processes of this world. `watch` observes the calls of the program; `later`
    are further calls of the target, which another process noted. `stopped` are sentences on programs that ran too long.
    """

    request: WorldRequest
    before: frozenset[str]
    around: Surroundings
    imports: ImportGraph
    instrument: Instrument
    stack: ExitStack
    recorder: ExitStack
    program: ProgramFile | None = None
    run: ProgramRun = field(default_factory=ProgramRun)
    call: FirstCall | None = None
    loaded: Loaded | None = None
    missing: ImportError | None = None
    since: frozenset[str] = frozenset()
    is_entered: bool = False
    edits: Mapping[str, str] = field(default_factory=dict[str, str])
    ran: set[str] = field(default_factory=set[str])
    watch: CallWatch | None = None
    later: Sequence[LaterCall] = ()
    stopped: dict[str, None] = field(default_factory=dict[str, None])

    @classmethod
    def begin(cls, request: WorldRequest, compiles: bool = False) -> World:
        """Return the world of this process, which has run no code of the user so far.

        `compiles` is as in `possible_devices`.
        """
        warnings.simplefilter("ignore")
        watch_reads()
        before = frozenset(sys.modules)
        insert_user_paths(list(request.roots))
        watched = {file.file: file.source for file in request.files}
        instrument = Instrument(request.roots, {**request.overlays, **watched}, watched)
        instrument.install()
        stack, recorder, imports = ExitStack(), ExitStack(), ImportGraph()
        stack.enter_context(scratch_files())
        around = stack.enter_context(surroundings("\n".join(file.source for file in request.files), compiles))
        recorder.enter_context(imports.recording())
        return cls(request, before, around, imports, instrument, stack, recorder)

    def watched(self, file: str) -> WatchedFile | None:
        """Return the watched file at a path, if there is one."""
        return next((watched for watched in self.request.files if watched.file == file), None)

    def import_needs(self, file: WatchedFile) -> None:
        """Run the imports at the top level of a file, except for those that fail."""
        namespace = {"__name__": file.module, "__package__": file.package, "__file__": file.file}
        with forbid_effects(), suppress(TimeUp, SystemExit), time_limit(IMPORT_SECONDS):
            for node in ast.parse(file.source, file.file).body:
                if isinstance(node, (ast.Import, ast.ImportFrom)) and getattr(node, "module", "") != "__future__":
                    with suppress(Exception):
                        exec(compile(ast.Module([node], []), file.file, "exec", dont_inherit=True), namespace)

    def import_whole(self, file: WatchedFile) -> bool:
        """Import a file that is not a program; return False if that fails or leaves anything out."""
        request = TraceRequest(
            file.file, "", "module", file.source, file.source, file.module, file.package, self.request.roots
        )
        try:
            with forbid_effects(), time_limit(IMPORT_SECONDS):
                loaded = load(request, self.around.mode)
                flags_parsed()
        except (LoadError, SystemExit, TimeUp):
            return False
        self.loaded = loaded
        return loaded.missing is None and not loaded.notes and not loaded.whole

    def follow(self, program: ProgramFile, report: Callable[[FirstCall], None]) -> None:
        """Run a program from its first statement to its last; `report` is called at the first call of each target.

        An exception of the program ends it; an exception of `report` is raised. Raises GpuWanted if the program needs a
        GPU and was told that there is none.
        """
        self.program, self.run = program, ProgramRun()
        if not program.package:  # Python looks there first for what a script imports
            insert_user_paths([os.path.dirname(program.file)])
        text = program.source or self._text_of(program.file)
        try:
            plain = with_numbers(ast.parse(text, program.file))
            tree = self.instrument.compile(imported(plain) if program.entry else rehearsed(plain), text, program.file)
            entry = parse_expression(program.entry) if program.entry else None
        except (SyntaxError, ValueError):
            return
        if entry is not None:
            tree.body.append(ast.fix_missing_locations(ast.Expr(entry)))
        linecache.cache[program.file] = (len(text), None, text.splitlines(keepends=True), program.file)
        module = new_module(program.module, program.package, program.file)
        for name, helper in self.run.namespace().items():
            setattr(builtins, name, helper)
        with forbid_effects(), time_limit(IMPORT_SECONDS):
            self.missing = stand_in_for(text, module).first

        def checked(call: FirstCall) -> None:
            self._check_devices()
            report(call)

        def is_muted() -> bool:
            return self.run.failing > 0

        watch = self.watch = CallWatch(program.file, self.request.files, checked, self.run.turns.note, is_muted)
        sources = Sources(program.file, None)
        self.instrument.listen(watch)
        with self.run.surroundings(program.file, sources, text.splitlines(), self.around.mode):
            try:
                self.run.execute(tree, program.file, module, PROGRAM_SECONDS)
            except TimeUp:
                self.stopped[f"{self.shown(program.file)} was not followed to its end: it takes too long"] = None
                raise
        for call in watch.made():
            checked(call)
        self._check_devices()

    def _text_of(self, file: str) -> str:
        """Return the text of a file in the editor, or else on disk; "" if it cannot be read."""
        watched, unsaved = self.watched(file), self.instrument.text_of(file)
        if watched is not None or unsaved is not None:
            return watched.source if watched is not None else unsaved or ""
        try:
            return files.read_python(file)
        except (OSError, ValueError, SyntaxError):
            return ""

    def _check_devices(self) -> None:
        if self.around.devices.undecided:
            raise GpuWanted

    def with_gpu(self) -> None:
        """Report a GPU to the code from now on; imported modules of the project are imported again."""
        if self.around.devices.gpu is not None:
            self.around.devices.gpu.available, self.around.devices.gpu.denied = True, False
        forget_project(self.request.roots, self.before)

    def forget(self) -> None:
        """Forget the program and the modules of the project; imported packages remain."""
        self.program = self.call = self.loaded = None
        forget_stand_ins()
        forget_project(self.request.roots, self.before)

    def has(self, file: str, names: Collection[str]) -> bool:
        """Return whether the module of a target has all of these names, and none of them is absent."""
        module = self._module(file)
        return module is not None and all(
            name in vars(module) and not isinstance(vars(module)[name], Absent) for name in names
        )

    def _module(self, file: str) -> ModuleType | None:
        if self.call is not None:
            return sys.modules.get(self.call.module)
        if self.loaded is not None:
            return self.loaded.module
        is_own = self.program is not None and self.program.file == file
        return sys.modules.get(self.program.module) if is_own and self.program is not None else None

    def module_of(self, request: TraceRequest) -> Loaded:
        """Return the module of a target in this process."""
        module = self._module(request.file)
        assert module is not None, "the target was found here"
        return Loaded(module, whole=False, missing=self.missing)

    def return_losses(self, request: TraceRequest) -> None:
        """Make a training step return its losses instead of differentiating them.

        AOTAutograd differentiates what a function returns, and captures no `backward` in it.
        """
        module = self._module(request.file)
        step = code_of_step(request.file, request.sliced, request.step)
        if module is not None and step is not None:
            vars(module)[BACKWARD] = backward_of
            self.instrument.replace(step)

    @property
    def reason(self) -> str:
        """Say why a program did not reach a target: it was too slow, or something was missing; else ""."""
        lacking = (sentence(error) for error in self.run.absences.errors)
        return next(iter((*self.stopped, *lacking)), "")

    def offers(self) -> tuple[Offer, ...]:
        """Return the arguments that the program passes to the target, without the placeholders of missing values."""
        if self.call is None:
            return ()
        offer, line = self.call.located(self._place(self.call.line), self._place(self.call.init_line)), self.run.line
        args = {name: plan for name, plan in offer.args.items() if not is_absent(plan)}
        kept = {name: plan for name, plan in (offer.init or {}).items() if not is_absent(plan)}
        numbers = self.run.absences.numbers or self.around.notes.sizes
        guessed = bool(line.invented or numbers) or not self.call.is_complete
        return (
            replace(
                offer,
                args=args,
                init=kept if offer.init is not None else None,
                guessed=guessed,
                unset=bool(line.unset),
                later=tuple(WrittenInputs(text, "recorded", detail=self._place(place)) for text, place in self.later),
            ),
        )

    def later_calls(self) -> dict[str, dict[str, list[LaterCall]]]:
        """Return the calls of each target after its first call, by file and name."""
        calls: dict[str, dict[str, list[LaterCall]]] = {}
        for target, later in (self.watch.later if self.watch is not None else {}).items():
            calls.setdefault(target.file, {})[target.name] = list(later.lines.items())
        return calls

    def _place(self, line: int) -> str:
        """Return the place of a call of the program for people, with the line in the present text."""
        assert self.program is not None and self.call is not None, "a program has called it"
        file = self.program.file
        watched = self.watched(file)
        if watched is not None and file in self.edits:
            line = edited_lines(watched.source.split("\n"), self.edits[file].split("\n")).get(line, line)
        return f"line {line}" if file == self.call.target.file else f"{self.shown(file)}:{line}"

    def shown(self, file: str) -> str:
        """Return the path of a file for people: below the outermost root that contains it."""
        roots = [root for root in self.request.roots if file.startswith(root + os.sep)]
        return os.path.relpath(file, min(roots, key=len)) if roots else os.path.basename(file)

    def needed(self, file: str, *others: str) -> frozenset[str]:
        """Return the files that the answer for a target of `file` depends on, without `file`; `others` call it."""
        files = {inner for each in (file, *others) for inner in self.imports.reached(each)}
        if self.program is not None:
            files |= {self.program.file, *self.imports.reached(self.program.file)}
        for name, module in list(sys.modules.items()):
            own = getattr(module, "__file__", None)
            if name not in self.since and isinstance(own, str):
                files.add(own)
        return frozenset(files - {file})

    def functions_run(self, file: str) -> frozenset[str]:
        """Return the functions of a watched file that have run so far, by their qualified names."""
        watched = self.watched(file)
        names = outermost_names(watched.source) if watched is not None else {}
        lines = {line for of, line in self.instrument.places if of == file}
        return frozenset(name for line, name in names.items() if line in lines)

    def read(self) -> dict[str, ReadState]:
        """Return the files that this process has read since the last call of `read`, with their states at that time."""
        modules = [
            module.__file__ or ""
            for name, module in list(sys.modules.items())
            if name not in self.before and is_of_project(name, module, self.request.roots)
        ]
        programs = [self.program.file] if self.program is not None else []
        others = (*modules, *programs, *foreign_modules(self.request.roots), *package_files())
        return {**{file: state_of(file) for file in others}, **reads().news()}

    def stands(self, edits: Mapping[str, str]) -> bool:
        """Return whether the state of this process would be the same with later texts of some files.

        It would if only bodies of functions differ, if none of these functions has run except the target whose call
        the process is at, and if all of them see the same variables as before.
        """
        place = self.call.place if self.call is not None else None
        for file, text in edits.items():
            watched = self.watched(file)
            try:
                changed = changed_functions(watched.source, text) if watched is not None else None
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return False
            if changed is None or {(file, line) for line in changed} & (self.instrument.places - {place}):
                return False
            if not self.instrument.can_edit(file, text):
                return False
        return True

    def edit(self, edits: Mapping[str, str]) -> None:
        """Replace the texts of files by later ones, for which `stands` is true."""
        self.edits = edits
        for file, text in edits.items():
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            self.instrument.edit(file, text)

    def enter(self) -> None:
        """Answer a request for a target with the state of this process."""
        self.recorder.close()
        self.stack.enter_context(temporarily_clear_interpreter_stack())
        with self.around.mode:
            for state in self.call.states if self.call is not None else ():
                state.restore(self.around.mode)
        self.around.notes.numbers.update(self.run.absences.numbers)
        self.since = frozenset(sys.modules)
        self.is_entered = True
        _CURRENT[:] = [self]

    def leave(self) -> None:
        """Leave this process to a request that runs its own code; imported modules remain."""
        self.instrument.restore()
        self.stack.close()
        self.since = frozenset(sys.modules)
        self.is_entered = False
        _CURRENT[:] = [self]


_CURRENT: list[World] = []


def current() -> World | None:
    """Return the world that this process is, if it is one."""
    return _CURRENT[0] if _CURRENT else None
