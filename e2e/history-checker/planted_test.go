package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// story builds a history of one key, in which every operation takes one moment
// and follows the one before, unless it is told otherwise.
type story []operation

const theKey = "k"

func text(value string) *string { return &value }

func (s story) add(op operation) story {
	op.Client, op.Key = len(s)+1, theKey
	if op.Call == 0 {
		op.Call, op.Return = int64(len(s))*10+1, int64(len(s))*10+2
	}
	if op.Outcome == "" {
		op.Outcome, op.ClusterID = ok, "c1"
	}
	return append(s, op)
}

func (s story) put(value string, revision int64) story {
	return s.add(operation{Kind: put, Write: value, Applied: true, Revision: revision})
}

func (s story) get(value string, revision, modRevision int64) story {
	return s.add(operation{Kind: get, Read: text(value), Revision: revision, ModRevision: modRevision})
}

func (s story) missing(revision int64) story {
	return s.add(operation{Kind: get, Revision: revision})
}

func (s story) remove(revision int64) story {
	return s.add(operation{Kind: remove, Applied: true, Revision: revision})
}

func (s story) unknownPut(value string) story {
	return s.add(operation{Kind: put, Write: value, Outcome: unknown})
}

func (s story) unknownDelete() story { return s.add(operation{Kind: remove, Outcome: unknown}) }

// change edits the last operation.
func (s story) change(edit func(op *operation)) story {
	edit(&s[len(s)-1])
	return s
}

// end makes the last operation the final read.
func (s story) end() story { return s.change(func(op *operation) { op.Final = true }) }

func (s story) lines(t *testing.T) string {
	t.Helper()
	var lines strings.Builder
	for _, op := range s {
		if err := json.NewEncoder(&lines).Encode(op); err != nil {
			t.Fatal(err)
		}
	}
	return lines.String()
}

func judged(t *testing.T, lines string) (int, string) {
	t.Helper()
	var numbers, words strings.Builder
	verdict := run(strings.NewReader(lines), time.Minute, &numbers, &words)
	return verdict, words.String()
}

func TestWhatIsLegal(t *testing.T) {
	cases := map[string]story{
		"a quiet cluster":                       story{}.put("a", 2).get("a", 2, 2).put("b", 3).get("b", 3, 3).end(),
		"a delete":                              story{}.put("a", 2).remove(3).missing(3).end(),
		"others write too":                      story{}.put("a", 2).get("a", 7, 2).put("b", 9).get("b", 12, 9).end(),
		"an unknown write that shows at once":   story{}.put("a", 2).unknownPut("b").get("b", 3, 3).end(),
		"an unknown write that shows late":      story{}.put("a", 2).unknownPut("b").get("a", 2, 2).get("b", 3, 3).end(),
		"an unknown write that never shows":     story{}.put("a", 2).unknownPut("b").get("a", 2, 2).get("a", 2, 2).end(),
		"an unknown write that was overwritten": story{}.put("a", 2).unknownPut("b").put("c", 4).get("c", 4, 4).end(),
		"an unknown write under a delete":       story{}.unknownPut("a").remove(3).missing(3).put("b", 4).get("b", 4, 4).end(),
		"an unknown delete that shows late":     story{}.put("a", 2).unknownDelete().get("a", 2, 2).missing(3).end(),
		"an unknown delete that never shows":    story{}.put("a", 2).unknownDelete().get("a", 2, 2).end(),
		"a definite failure":                    story{}.put("a", 2).unknownPut("b").change(fails).get("a", 2, 2).end(),
		"concurrent writes in either order": story{}.put("a", 3).change(long).put("b", 2).change(long).
			get("a", 3, 3).change(late).end(),
		"a read that overlaps a write": story{}.put("a", 2).change(long).missing(1).change(long).
			get("a", 2, 2).change(late).end(),
		"cas that succeeds, and one that does not": story{}.put("a", 2).
			add(operation{Kind: cas, Expected: text("a"), Write: "b", Applied: true, Revision: 3}).
			add(operation{Kind: cas, Expected: text("a"), Write: "c", Read: text("b"), Revision: 3, ModRevision: 3}).
			get("b", 3, 3).end(),
	}
	for name, told := range cases {
		t.Run(name, func(t *testing.T) {
			if verdict, words := judged(t, told.lines(t)); verdict != good {
				t.Errorf("refused:\n%s", words)
			}
		})
	}
}

func fails(op *operation) { op.Outcome = failed }

func long(op *operation) { op.Call, op.Return = 1, 500 }

func late(op *operation) { op.Call, op.Return = 1000, 1001 }

func TestPlantedViolationsAreFoundAndNamed(t *testing.T) {
	cases := map[string]struct {
		told story
		name string
	}{
		"an acknowledged write that is missing at the end":   {story{}.put("a", 2).missing(2).end(), lostWrite},
		"an acknowledged write that is undone at the end":    {story{}.put("a", 2).put("b", 3).get("a", 3, 2).end(), lostWrite},
		"an acknowledged delete that is undone at the end":   {story{}.put("a", 2).remove(3).get("a", 3, 2).end(), lostWrite},
		"an acknowledged write lost in between":              {story{}.put("a", 2).missing(3).put("b", 4).get("b", 4, 4).end(), notLinearizable},
		"a stale read":                                       {story{}.put("a", 2).put("b", 3).get("a", 3, 2).put("c", 4).get("c", 4, 4).end(), notLinearizable},
		"a stale read with its old revision":                 {story{}.put("a", 2).put("b", 3).get("a", 2, 2).get("b", 3, 3).end(), revisionBack},
		"concurrent writes in an order against revisions":    {story{}.put("a", 3).change(long).put("b", 2).change(long).get("b", 3, 2).change(late).put("c", 5).change(later).get("c", 5, 5).change(last).end(), notLinearizable},
		"a read of a value that nobody wrote":                {story{}.put("a", 2).get("x", 3, 3).get("a", 3, 2).end(), inventedValue},
		"a read of a write that failed":                      {story{}.put("a", 2).unknownPut("b").change(fails).get("b", 3, 3).end(), inventedValue},
		"a read of a write that had not begun":               {story{}.put("a", 2).get("b", 3, 3).unknownPut("b").get("b", 3, 3).end(), notLinearizable},
		"an unknown write that shows and is gone again":      {story{}.put("a", 2).unknownPut("b").get("b", 3, 3).get("a", 3, 2).put("c", 4).get("c", 4, 4).end(), notLinearizable},
		"one unknown delete for two absences":                {story{}.put("a", 2).unknownDelete().missing(3).put("b", 4).missing(5).put("c", 6).get("c", 6, 6).end(), notLinearizable},
		"a write whose revision goes back":                   {story{}.put("a", 5).put("b", 4).get("b", 5, 4).end(), revisionBack},
		"a read whose revision goes back":                    {story{}.put("a", 5).get("a", 4, 4).get("a", 5, 5).end(), revisionBack},
		"a write with a revision that was told before":       {story{}.put("a", 2).get("a", 6, 2).put("b", 6).get("b", 6, 6).end(), revisionBack},
		"a value from the future":                            {story{}.put("a", 5).get("a", 5, 6).end(), revisionBack},
		"two writes with one revision":                       {story{}.put("a", 2).change(long).put("b", 2).change(long).get("b", 2, 2).change(late).end(), sharedRevision},
		"another cluster":                                    {story{}.put("a", 2).put("b", 3).change(foreigner).get("b", 3, 3).end(), otherCluster},
		"a value with the wrong revision":                    {story{}.put("a", 2).put("b", 4).get("b", 5, 3).end(), notLinearizable},
		"a cas that succeeds against another value":          {story{}.put("a", 2).add(operation{Kind: cas, Expected: text("x"), Write: "b", Applied: true, Revision: 3}).get("b", 3, 3).end(), notLinearizable},
		"a cas that fails although the value is as expected": {story{}.put("a", 2).add(operation{Kind: cas, Expected: text("a"), Write: "b", Read: text("a"), Revision: 2, ModRevision: 2}).get("a", 2, 2).end(), notLinearizable},
		"a delete that finds nothing although something is":  {story{}.put("a", 2).add(operation{Kind: remove, Revision: 2}).get("a", 2, 2).end(), notLinearizable},
	}
	for name, planted := range cases {
		t.Run(name, func(t *testing.T) {
			verdict, words := judged(t, planted.told.lines(t))
			if verdict != violated || !strings.Contains(words, strings.ToUpper(planted.name)+": ") {
				t.Errorf("verdict %s, wanted %s:\n%s", verdicts[verdict], planted.name, words)
			}
		})
	}
}

func later(op *operation) { op.Call, op.Return = 2000, 2001 }

func last(op *operation) { op.Call, op.Return = 3000, 3001 }

func foreigner(op *operation) { op.ClusterID = "c2" }

func TestWhatCannotBeJudged(t *testing.T) {
	good := story{}.put("a", 2).get("a", 2, 2).end()
	cases := map[string]string{
		"no history":      "hello\n",
		"nothing at all":  "",
		"no write":        story{}.missing(1).end().lines(t),
		"no final read":   story{}.put("a", 2).get("a", 2, 2).lines(t),
		"an unknown kind": strings.Replace(good.lines(t), `"put"`, `"push"`, 1),
		"no such outcome": strings.Replace(good.lines(t), `"ok"`, `"fine"`, 1),
		"no revision":     strings.Replace(good.lines(t), `"revision":2`, `"revision":0`, 1),
		"time runs back":  strings.Replace(good.lines(t), `"return":2`, `"return":0`, 1),
		"two things at once": story{}.put("a", 2).change(long).put("b", 3).change(long).change(first).
			get("b", 3, 3).change(late).end().lines(t),
		"going on after an unknown": story{}.unknownPut("a").put("b", 3).change(first).get("b", 3, 3).end().lines(t),
	}
	for name, lines := range cases {
		t.Run(name, func(t *testing.T) {
			if verdict, words := judged(t, lines); verdict != undecided || !strings.Contains(words, "UNDECIDED") {
				t.Errorf("verdict %s:\n%s", verdicts[verdict], words)
			}
		})
	}
}

func first(op *operation) { op.Client = 1 }

func TestTheVerdictShowsTheOffendingOperations(t *testing.T) {
	_, words := judged(t, story{}.put("a", 2).put("b", 3).get("a", 3, 2).end().lines(t))
	for _, wanted := range []string{"LOST WRITE: at the end k", "put k to b", "ok, revision 3", "get k -> a", "modified at 2", "VIOLATED: 3 operations on 1 keys"} {
		if !strings.Contains(words, wanted) {
			t.Errorf("%q is not in:\n%s", wanted, words)
		}
	}
}

func TestNotEverythingIsTold(t *testing.T) {
	told := story{}.put("a", 2)
	for range 20 {
		told = told.get("x", 2, 2)
	}
	_, words := judged(t, told.get("a", 2, 2).end().lines(t))
	if strings.Count(words, "-> x") != toldOfEach || !strings.Contains(words, "INVENTED VALUE: 15 more") {
		t.Error(words)
	}
}
