from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATUS_OK: _ClassVar[Status]
    STATUS_MALFORMED: _ClassVar[Status]
    STATUS_REFUSED: _ClassVar[Status]
    STATUS_AWAY: _ClassVar[Status]
    STATUS_EXPIRED: _ClassVar[Status]
    STATUS_BUDGET: _ClassVar[Status]
    STATUS_BUSY: _ClassVar[Status]
    STATUS_MISSING: _ClassVar[Status]
    STATUS_PENDING: _ClassVar[Status]
    STATUS_DEAD: _ClassVar[Status]

class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SOURCE_BACKEND: _ClassVar[Source]
    SOURCE_MEMORY: _ClassVar[Source]
    SOURCE_REDIS: _ClassVar[Source]
    SOURCE_JOURNAL: _ClassVar[Source]
    SOURCE_FLIGHT: _ClassVar[Source]

class Verb(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERB_GENERATE: _ClassVar[Verb]
    VERB_SCORE: _ClassVar[Verb]
    VERB_EMBED: _ClassVar[Verb]

class Normalisation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NORMALISATION_NONE: _ClassVar[Normalisation]
    NORMALISATION_TOKENS: _ClassVar[Normalisation]
STATUS_OK: Status
STATUS_MALFORMED: Status
STATUS_REFUSED: Status
STATUS_AWAY: Status
STATUS_EXPIRED: Status
STATUS_BUDGET: Status
STATUS_BUSY: Status
STATUS_MISSING: Status
STATUS_PENDING: Status
STATUS_DEAD: Status
SOURCE_BACKEND: Source
SOURCE_MEMORY: Source
SOURCE_REDIS: Source
SOURCE_JOURNAL: Source
SOURCE_FLIGHT: Source
VERB_GENERATE: Verb
VERB_SCORE: Verb
VERB_EMBED: Verb
NORMALISATION_NONE: Normalisation
NORMALISATION_TOKENS: Normalisation

class Candidates(_message.Message):
    __slots__ = ("texts",)
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ...) -> None: ...

class Parameters(_message.Message):
    __slots__ = ("temperature", "max_tokens", "stop", "seed", "normalise")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    NORMALISE_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    max_tokens: int
    stop: _containers.RepeatedScalarFieldContainer[str]
    seed: int
    normalise: Normalisation
    def __init__(self, temperature: _Optional[float] = ..., max_tokens: _Optional[int] = ..., stop: _Optional[_Iterable[str]] = ..., seed: _Optional[int] = ..., normalise: _Optional[_Union[Normalisation, str]] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("task", "contents", "candidates", "parameters", "sample")
    TASK_FIELD_NUMBER: _ClassVar[int]
    CONTENTS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    task: str
    contents: _containers.RepeatedScalarFieldContainer[str]
    candidates: _containers.RepeatedCompositeFieldContainer[Candidates]
    parameters: Parameters
    sample: int
    def __init__(self, task: _Optional[str] = ..., contents: _Optional[_Iterable[str]] = ..., candidates: _Optional[_Iterable[_Union[Candidates, _Mapping]]] = ..., parameters: _Optional[_Union[Parameters, _Mapping]] = ..., sample: _Optional[int] = ...) -> None: ...

class Answers(_message.Message):
    __slots__ = ("status", "payload", "reason", "source", "tokens", "dollars")
    class ReasonEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: str
        def __init__(self, key: _Optional[int] = ..., value: _Optional[str] = ...) -> None: ...
    STATUS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    DOLLARS_FIELD_NUMBER: _ClassVar[int]
    status: _containers.RepeatedScalarFieldContainer[Status]
    payload: _containers.RepeatedScalarFieldContainer[bytes]
    reason: _containers.ScalarMap[int, str]
    source: _containers.RepeatedScalarFieldContainer[Source]
    tokens: _containers.RepeatedScalarFieldContainer[int]
    dollars: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, status: _Optional[_Iterable[_Union[Status, str]]] = ..., payload: _Optional[_Iterable[bytes]] = ..., reason: _Optional[_Mapping[int, str]] = ..., source: _Optional[_Iterable[_Union[Source, str]]] = ..., tokens: _Optional[_Iterable[int]] = ..., dollars: _Optional[_Iterable[float]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("verb", "ask")
    VERB_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    verb: Verb
    ask: Ask
    def __init__(self, verb: _Optional[_Union[Verb, str]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ...) -> None: ...

class Accepted(_message.Message):
    __slots__ = ("keys", "status")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    status: _containers.RepeatedScalarFieldContainer[Status]
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., status: _Optional[_Iterable[_Union[Status, str]]] = ...) -> None: ...

class Keys(_message.Message):
    __slots__ = ("keys", "wait_s")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    WAIT_S_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    wait_s: float
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., wait_s: _Optional[float] = ...) -> None: ...

class Empty(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class State(_message.Message):
    __slots__ = ("ok", "reason", "backend", "max_items", "max_characters")
    OK_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    ok: bool
    reason: str
    backend: str
    max_items: int
    max_characters: int
    def __init__(self, ok: _Optional[bool] = ..., reason: _Optional[str] = ..., backend: _Optional[str] = ..., max_items: _Optional[int] = ..., max_characters: _Optional[int] = ...) -> None: ...

class Numbers(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, float]
    def __init__(self, values: _Optional[_Mapping[str, float]] = ...) -> None: ...
