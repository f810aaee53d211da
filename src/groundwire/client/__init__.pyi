# The names of the client, and the modules that define them: `__init__.py` imports each on first use.

from .fields import ChunkFields as ChunkFields
from .fields import ClaimFields as ClaimFields
from .fields import EntityFields as EntityFields
from .fields import RelationFields as RelationFields
from .fields import ResponseFields as ResponseFields
from .fields import SourceFields as SourceFields
from .following import changes as changes
from .producer import Producer as Producer
from .producer import Sent as Sent
from .table import ApprovedTable as ApprovedTable
from .table import Change as Change
from .table import Decision as Decision
from .table import Memory as Memory
from .table import Retraction as Retraction
