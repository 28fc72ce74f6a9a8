"""Which client owns which row: computed from labels, row ids and a seed alone, never from features.

    iid               rows shuffled and dealt evenly
    dirichlet         per class, shares of the clients drawn from Dirichlet(α)       (NIID-1, LDA)
    shards            rows sorted by label, cut into K·s shards, s dealt to a client (NIID-2)
    by-attribute      one client per value of a metadata column: hospital, user, camera
    file              the client of every row as somebody else decided it
    dirichlet-pfl     the split that the published AFL and DeepAFL programs make
    pathological-pfl  what those programs call sharding

Every partition is disjoint and complete: one client per row, and `assign` checks it. Rows are put
in canonical order (by row id) first, so the same ids in any order get the same clients. Partition,
held-out clients and label noise each have a random stream of their own: asking for noise or for
held-out clients leaves the rows where they are.

Sources: He et al., "AFL: A Single-Round Analytic Approach for Federated Learning with Pre-trained
Models", CVPR 2025 (section 4.1 and table 2: α, s, IID); Tang et al., "DeepAFL: Deep Analytic
Federated Learning", ICLR 2026 (appendix E.2); Bacellar et al., "SAFLe", CVPR 2026 (section 4).
"""
