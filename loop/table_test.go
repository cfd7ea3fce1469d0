package loop_test

import (
	"testing"

	"github.com/penstock/penstock/loop"
	"pgregory.net/rapid"
)

type handler int

func (handler) Ready(uint8, loop.Events) {}

// TestTable: IDs in force are found, with what was put there; all others are stale,
// however often their slot has been used again.
func TestTable(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		table := loop.NewTable()
		live := map[loop.ID]int{}
		var ids, stale []loop.ID
		next := 0
		take := func() {
			id := table.Take(next, handler(next))
			if _, ok := live[id]; ok || id == 0 {
				t.Fatalf("ID %x is given twice, or 0", id)
			}
			live[id] = next
			ids = append(ids, id)
			next++
		}
		t.Repeat(map[string]func(*rapid.T){
			"take": func(*rapid.T) { take() },
			"take many": func(*rapid.T) {
				for range 700 { // more than a chunk
					take()
				}
			},
			"drop": func(t *rapid.T) {
				if len(ids) == 0 {
					t.Skip("none")
				}
				i := rapid.IntRange(0, len(ids)-1).Draw(t, "i")
				id := ids[i]
				ids[i] = ids[len(ids)-1]
				ids = ids[:len(ids)-1]
				table.Drop(id)
				delete(live, id)
				stale = append(stale, id)
			},
			"": func(t *rapid.T) {
				if table.Used() != len(live) {
					t.Fatalf("%d are used, want %d", table.Used(), len(live))
				}
				for id, n := range live {
					if fd, h, ok := table.Find(id); !ok || fd != n || h != handler(n) {
						t.Fatalf("ID %x: %d, %v, %v, want %d", id, fd, h, ok, n)
					}
				}
				for _, id := range append(stale, 0, 1<<63) {
					if _, _, ok := table.Find(id); ok {
						t.Fatalf("ID %x is not stale", id)
					}
				}
			},
		})
	})
}

// TestGenerationsGoRound: after the last one comes the first, which is not 0.
func TestGenerationsGoRound(t *testing.T) {
	t.Parallel()

	table := loop.NewTable()
	last := table.SetGeneration(table.Take(1, handler(1)), loop.LastGeneration)
	table.Drop(last)
	first := table.Take(2, handler(2))
	if _, _, ok := table.Find(first); !ok || first == 0 || first == last {
		t.Fatalf("after %x comes %x, found: %v", last, first, ok)
	}
	if _, _, ok := table.Find(last); ok {
		t.Fatal("the last one is in force still")
	}
}
