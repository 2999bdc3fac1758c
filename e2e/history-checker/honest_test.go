package main

import (
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

const never = 1 << 60

// honest plays clients of a store that keeps its promises. Each operation takes
// effect at one moment between its call and its return; of some the client never
// learns the end, and these take effect then, much later, or never.
func honest(seed uint64, clients, keys, operations int, unknownShare float64) *history {
	random := rand.New(rand.NewPCG(seed, 1))
	type planned struct {
		op     *operation
		effect int64
	}
	var plan []planned
	next := clients
	for client := range clients {
		identity, now := client, random.Int64N(1000)
		for range operations / clients {
			op := &operation{Client: identity, Key: fmt.Sprint("k", random.IntN(keys)), Call: now, ClusterID: "c"}
			op.Return = now + 10 + random.Int64N(3000)
			effect := op.Call + 1 + random.Int64N(op.Return-op.Call-1)
			op.Kind, op.Outcome = []kind{put, put, put, get, get, get, cas, cas, remove}[random.IntN(9)], ok
			op.Write = fmt.Sprint("v", len(plan))
			if random.Float64() < unknownShare {
				op.Outcome = unknown
				identity, next = next, next+1
				effect += []int64{0, 0, 100_000, never}[random.IntN(4)]
			}
			plan = append(plan, planned{op, effect})
			now = op.Return + 1 + random.Int64N(1000)
		}
	}
	sort.Slice(plan, func(i, j int) bool { return plan[i].effect < plan[j].effect })
	store := map[string]*operation{}
	revision := int64(1)
	for _, p := range plan {
		if p.effect < never {
			apply(p.op, store, &revision, random)
		}
	}
	h := &history{}
	for _, p := range plan {
		h.operations = append(h.operations, p.op)
	}
	return finish(h, store, revision, keys, next)
}

// apply does to the store what the operation asks for, and answers. The store
// holds the writer of each key.
func apply(op *operation, store map[string]*operation, revision *int64, random *rand.Rand) {
	current := store[op.Key]
	op.Applied = op.Kind == put || op.Kind == remove && current != nil
	if op.Kind == cas {
		op.Applied = random.IntN(2) == 0
		if current != nil {
			op.Expected = text(current.Write)
		}
		if !op.Applied {
			op.Expected = text("something else")
		}
	}
	if current != nil && (op.Kind == get || op.Kind == cas && !op.Applied) {
		op.Read, op.ModRevision = text(current.Write), current.Revision
	}
	if op.Applied {
		*revision++
		store[op.Key] = op
		if op.Kind == remove {
			delete(store, op.Key)
		}
	}
	op.Revision = *revision
}

// finish reads every key once more. What takes effect after that was never seen.
func finish(h *history, store map[string]*operation, revision int64, keys, client int) *history {
	var end int64
	for _, op := range h.operations {
		end = max(end, op.Return)
	}
	for key := range keys {
		op := &operation{Client: client, Kind: get, Key: fmt.Sprint("k", key), Outcome: ok, Final: true,
			Call: end + 1, Return: end + 2, Revision: revision, ClusterID: "c"}
		if writer := store[op.Key]; writer != nil {
			op.Read, op.ModRevision = text(writer.Write), writer.Revision
		}
		end = op.Return
		h.operations = append(h.operations, op)
	}
	for _, op := range h.operations {
		if op.Outcome == unknown {
			op.Revision, op.ModRevision, op.Read, op.Applied = 0, 0, nil, false
		}
	}
	sort.SliceStable(h.operations, func(i, j int) bool { return h.operations[i].Call < h.operations[j].Call })
	return h
}

func TestAnHonestStoreIsNeverAccused(t *testing.T) {
	for seed := range uint64(300) {
		h := honest(seed, 4, 3, 200, float64(seed%4)*0.05)
		if verdict, words := judge(h, time.Minute); verdict != good {
			t.Fatalf("seed %d:\n%s", seed, words)
		}
		for key, operations := range h.byKey() {
			if result, _ := linearizable(operations, false, time.Minute); result != porcupine.Ok {
				t.Fatalf("seed %d: %s by values alone: %s", seed, key, result)
			}
		}
	}
}

// Each of these is a lie that a client could be told.
var lies = map[string]func(h *history, at int) bool{
	"an older value": func(h *history, at int) bool {
		return lie(h, at, func(op *operation) bool { return op.Kind == get && op.Read != nil }, func(op, before *operation) {
			op.Read = text(before.Write)
		})
	},
	"no value": func(h *history, at int) bool {
		return lie(h, at, func(op *operation) bool { return op.Kind == get && op.Read != nil }, func(op, _ *operation) {
			op.Read, op.ModRevision = nil, 0
		})
	},
	"an older revision": func(h *history, at int) bool {
		return lie(h, at, func(op *operation) bool { return op.ackedWrite() }, func(op, before *operation) {
			op.Revision = before.Revision
		})
	},
}

// lie changes the first fitting answer from a place on, by the last write to the same key that was long over.
func lie(h *history, at int, fits func(*operation) bool, tell func(op, before *operation)) bool {
	for index := at; index < len(h.operations); index++ {
		op := h.operations[index]
		if op.Outcome != ok || !fits(op) {
			continue
		}
		for _, before := range h.operations[:index] {
			over := before.Return < op.Call-10000 && before.Key == op.Key
			if over && before.ackedWrite() && before.Kind == put && (op.Read == nil || before.Write != *op.Read) {
				tell(op, before)
				return true
			}
		}
	}
	return false
}

func TestALieInAnHonestHistoryIsFound(t *testing.T) {
	for name, tellLie := range lies {
		t.Run(name, func(t *testing.T) {
			told := 0
			for seed := range uint64(100) {
				h := honest(seed, 4, 3, 200, 0)
				if !tellLie(h, 40+int(seed)) {
					continue
				}
				told++
				if verdict, words := judge(h, time.Minute); verdict != violated {
					t.Errorf("seed %d: verdict %s\n%s", seed, verdicts[verdict], words)
				}
			}
			if told < 50 {
				t.Errorf("only %d lies were told", told)
			}
		})
	}
}

func TestALongHistoryIsJudgedInTheEnd(t *testing.T) {
	h := honest(1, 4, 8, 50_000, 0.01)
	var lines story
	for _, op := range h.operations {
		lines = append(lines, *op)
	}
	text := lines.lines(t)
	began := time.Now()
	verdict, words := judged(t, text)
	t.Logf("%d operations in %s", len(h.operations), time.Since(began))
	if verdict != good {
		t.Errorf("verdict %s\n%s", verdicts[verdict], words)
	}
	h.operations[40_000].Revision++
	if verdict, words = judge(h, time.Minute); strings.Contains(words, "UNDECIDED") {
		t.Errorf("verdict %s\n%s", verdicts[verdict], words)
	}
}
