package arena

import (
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/testutil/must"
)

// The layout of a machine with several nodes, without such a machine.

func TestRegions(t *testing.T) {
	const k = ChunkSize
	for name, c := range map[string]struct {
		size   int64
		nodes  []int
		pages  Pages
		want   []region
		mapped int64
	}{
		"nothing bound":         {3 * k, nil, PagesPlain, []region{{-1, 3, 0, 3 * k}}, 3 * k},
		"part of a chunk":       {k + 1, nil, PagesPlain, []region{{-1, 2, 0, 2 * k}}, 2 * k},
		"huge":                  {3 * k, nil, PagesReserved, []region{{-1, 3, 0, hugeSize}}, hugeSize},
		"two nodes":             {64 * k, []int{0, 1, 0, 1}, PagesPlain, []region{{0, 32, 0, hugeSize}, {1, 32, hugeSize, hugeSize}}, 2 * hugeSize},
		"uneven":                {10 * k, []int{3, 1, 3}, PagesTransparent, []region{{3, 6, 0, hugeSize}, {1, 4, hugeSize, hugeSize}}, 2 * hugeSize},
		"fewer chunks than two": {1, []int{0, 1}, PagesPlain, []region{{0, 1, 0, hugeSize}, {1, 1, hugeSize, hugeSize}}, 2 * hugeSize},
		"given, and one":        {33 * k, []int{5, 5}, PagesReserved, []region{{5, 33, 0, 2 * hugeSize}}, 2 * hugeSize},
	} {
		rs := regions(c.size, c.nodes)
		if n := lay(rs, c.pages); n != c.mapped || !slices.Equal(rs, c.want) {
			t.Errorf("%s: %v in %d bytes, want %v in %d", name, rs, n, c.want, c.mapped)
		}
	}
}

// TestDepotsOfNodes: each Local has the chunks of its node and no others.
func TestDepotsOfNodes(t *testing.T) {
	nodes := []int{1, 0, 1}
	rs := regions(40*ChunkSize, nodes)
	total := lay(rs, PagesPlain)
	a := &Arena{chunks: make([]chunk, total/ChunkSize)}
	for _, r := range rs {
		a.depots = append(a.depots, newDepot(r))
	}
	seen := make([]bool, len(a.chunks))
	for i := range nodes {
		d := a.depotOf(nodes, i)
		if d.node != nodes[i] {
			t.Errorf("Local %d of node %d has the chunks of node %d", i, nodes[i], d.node)
		}
	}
	for i, d := range a.depots {
		for range d.chunks {
			n := must.Get(d.take())(t)
			at := int64(n) * ChunkSize
			if at < rs[i].offset || at+ChunkSize > rs[i].offset+rs[i].bytes || seen[n] {
				t.Errorf("node %d: chunk at %d, taken: %v", d.node, at, seen[n])
			}
			seen[n] = true
		}
		if _, err := d.take(); err != ErrBudget {
			t.Errorf("node %d: one more: %v", d.node, err)
		}
	}
}
