# A run as a Makefile: every stage is a file made of files, parts in parallel, done ones kept.
#
#     make -f examples/pipeline.mk -j 4 TRAIN=train.h5 TEST=test.h5
#     make -f examples/pipeline.mk -j 4 TRAIN=… TEST=… RUN=folder CLIENTS=1000 PARTS=20
#
# TRAIN and TEST are feature files (afltool extract or import). Heads of one round; for those of
# several use afltool run or afltool slurm.
RUN ?= make-run
CLIENTS ?= 100
PARTS ?= 4
HEAD ?= linear
SOLVE ?=
ALPHA ?= 0.1

last := $(shell expr $(PARTS) - 1)
sums := $(foreach i,$(shell seq 0 $(last)),$(RUN)/parts/$(i).h5)

.PHONY: all
.DELETE_ON_ERROR:
all: $(RUN)/metrics.json

$(RUN)/clients.h5: $(TRAIN)
	afltool partition $< --alpha $(ALPHA) --clients $(CLIENTS) -o $@ --overwrite

$(RUN)/head0.h5:
	afltool head $(HEAD) -o $@

# Part I of the clients: one of PARTS sums, each a process of its own.
$(RUN)/parts/%.h5: $(TRAIN) $(RUN)/clients.h5 $(RUN)/head0.h5
	afltool local-stats $(TRAIN) --partition $(RUN)/clients.h5 --head $(RUN)/head0.h5 \
		--only $*/$(PARTS) --sum -o $@ --overwrite

$(RUN)/total.h5: $(sums)
	afltool aggregate $^ -o $@ --overwrite

$(RUN)/head.h5: $(RUN)/total.h5
	afltool solve $< $(SOLVE) -o $@ --overwrite

$(RUN)/metrics.json: $(RUN)/head.h5 $(TEST)
	afltool evaluate $^ -o $@ --overwrite
