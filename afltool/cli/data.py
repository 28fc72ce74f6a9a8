"""What `extract` and `partition` do beside their stages."""

from __future__ import annotations

from ..options.features import ExtractNodes
from ..options.partition import PartitionOrLook
from ._console import print_json
from .commands import show


def extract(o: ExtractNodes, as_json: bool) -> None:
    """Extract features, or print what --node can name."""
    if not o.list_nodes:
        from ..stages.extract import extract as stage

        show(stage(o), as_json)
        return
    from ..show.tables import print_nodes
    from ..sources.extraction.request import Asked

    rows = Asked.of(o).nodes()
    print_json(rows) if as_json else print_nodes(rows)


def partition(o: PartitionOrLook, as_json: bool) -> None:
    """Make a partition, or look at one that is there."""
    from ..errors import UsageError
    from ..files.hdf5 import read_header
    from ..options.partition import Partition
    from ..show.tables import print_facts
    from ..stages import partition as stage

    describe = o.describe
    if o.out is not None:
        path = stage.partition(o.to(Partition))
    else:
        if read_header(o.features)["kind"] != "partition":
            raise UsageError("-o FILE is needed: where the partition goes")
        path, describe = o.features, describe or o.export is None
        if o.export is not None:
            stage.export(path, o.export, overwrite=o.overwrite)
    if not describe:
        show(path, as_json)
        return
    facts = stage.describe(path)
    print_json(facts) if as_json else print_facts(facts)
