package pipe_test

import (
	"testing"
	"time"

	"github.com/penstock/penstock/pipe"
	"pgregory.net/rapid"
)

// poolModel is a Pool of real pipes under a small budget, and its expected state.
type poolModel struct {
	clock clock
	pool  *pipe.Pool
	line  int64
	out   []*pipe.Pipe
	dirty int64
}

// TestPoolModel: in any order of leases, returns and trims the books balance, the
// budget holds, and a lease is refused only if the pipes that are out leave no
// room for it.
func TestPoolModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &poolModel{line: rapid.Int64Range(0, 600).Draw(t, "line")}
		budget := int(m.line)
		if budget == 0 {
			budget = -1
		}
		pl, err := pipe.NewPool(pipe.With(pipe.Config{
			Budget:   budget,
			MaxIdle:  rapid.SampledFrom([]int{-1, 1, 3, 100}).Draw(t, "MaxIdle"),
			IdleTime: -1,
		}, m.clock.now, pipe.NewLimits(1<<20, 1000, 0, 10000, false)))
		if err != nil {
			t.Fatal(err)
		}
		m.pool = pl
		defer m.close(t) // in any case: rapid may give a run up halfway
		t.Repeat(map[string]func(*rapid.T){
			"get":  m.get,
			"put":  func(t *rapid.T) { m.put(t, false) },
			"soil": func(t *rapid.T) { m.put(t, true) },
			"trim": func(t *rapid.T) {
				idle := pl.Stats().Idle
				if n := pl.Trim(); int64(n) != idle {
					t.Fatalf("trimmed %d of %d", n, idle)
				}
			},
			"time": func(*rapid.T) { m.clock.advance(time.Second) },
			"":     m.check,
		})
	})
}

func (m *poolModel) close(t *rapid.T) {
	for _, p := range m.out {
		m.pool.Put(p)
	}
	m.pool.Close()
	if s := m.pool.Stats(); s.UsedPages != 0 || s.Made != s.Closed {
		t.Errorf("after Close: %+v", s)
	}
}

func (m *poolModel) outPages() (n int64) { return m.outOver(0) }

// outOver sums up the pages of the pipes above a size that are out.
func (m *poolModel) outOver(size int) (n int64) {
	for _, p := range m.out {
		if p.Size() > size {
			n += pages(p)
		}
	}
	return n
}

func (m *poolModel) get(t *rapid.T) {
	size := pipe.DefaultSize << rapid.IntRange(0, 4).Draw(t, "class")
	m.clock.advance(time.Millisecond) // recalls are rare in time
	p, err := m.pool.Get(size)
	switch {
	case err == pipe.ErrBudget && m.pool.Stats().Refused+m.pool.Stats().Degraded > 0:
		// The machine's quota, not the model's: the ordinary user who runs this has
		// spent it.
	case err == pipe.ErrBudget:
		need := int64(size / 4096)
		crowded := size > pipe.DefaultSize && m.outOver(pipe.DefaultSize)+need > m.line/2
		if m.outPages()+need <= m.line && !crowded {
			t.Fatalf("refused %d pages with %d of %d out: %+v", need, m.outPages(), m.line, m.pool.Stats())
		}
	case err != nil:
		t.Fatal(err)
	case p.Size() != size || p.Len() != 0:
		t.Fatalf("requested %d, got %d with %d inside", size, p.Size(), p.Len())
	default:
		m.out = append(m.out, p)
	}
}

func (m *poolModel) put(t *rapid.T, soil bool) {
	if len(m.out) == 0 {
		t.Skip("nothing out")
	}
	i := rapid.IntRange(0, len(m.out)-1).Draw(t, "which")
	p := m.out[i]
	m.out = append(m.out[:i], m.out[i+1:]...)
	if soil {
		pipe.Load(p, []byte("x"))
		m.dirty++
	}
	m.pool.Put(p)
}

func (m *poolModel) check(t *rapid.T) {
	s := m.pool.Stats()
	if s.Leased != int64(len(m.out)) || s.Made != s.Closed+s.Leased+s.Idle || s.Dirty != m.dirty {
		t.Fatalf("books: %+v with %d out and %d soiled", s, len(m.out), m.dirty)
	}
	if s.UsedPages > m.line || s.UsedPages < m.outPages() || (s.Idle == 0) != (s.UsedPages == m.outPages()) {
		t.Fatalf("pages: %+v with %d out", s, m.outPages())
	}
}
