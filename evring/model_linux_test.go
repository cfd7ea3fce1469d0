package evring_test

import (
	"bytes"
	"testing"

	"github.com/penstock/penstock/evring"
	"pgregory.net/rapid"
)

// model is a ring and its expected content: the claims in their order, published or not.
type model struct {
	ring   *evring.Ring
	single bool
	claims []*claim // not wholly consumed
	next   byte
}

// claim is a push that has begun: its positions and its events.
type claim struct {
	pos       uint64
	events    [][]byte
	published bool
}

// TestModel: in any order of claims, publications, pops and drains, with many producers
// anywhere in their pushes, the consumer gets the published events up to the first claim
// that is not published, in order. A push is refused only if there is no place.
func TestModel(t *testing.T) {
	t.Run("Multi", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkModel(t, evring.Multi) }) })
	t.Run("Single", func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkModel(t, evring.Single) }) })
}

func checkModel(t *rapid.T, p evring.Producers) {
	r, err := evring.New(&evring.Config{
		Slots:     rapid.SampledFrom([]int{1, 2, 8, 64}).Draw(t, "slots"),
		SlotSize:  rapid.SampledFrom([]int{16, 32, 64, 128}).Draw(t, "size"),
		Producers: p,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	m := &model{ring: r, single: p == evring.Single}
	t.Repeat(map[string]func(*rapid.T){
		"push":    m.push,
		"claim":   m.claim,
		"publish": m.publish,
		"pop":     m.pop,
		"drain":   m.drain,
		"sleep":   m.sleep,
	})
}

// used is how many positions are taken.
func (m *model) used() (n int) {
	for _, c := range m.claims {
		n += len(c.events)
	}
	return n
}

// pending returns the claims that are not published.
func (m *model) pending() (out []*claim) {
	for _, c := range m.claims {
		if !c.published {
			out = append(out, c)
		}
	}
	return out
}

// first returns the oldest event that is ready.
func (m *model) first() ([]byte, bool) {
	if len(m.claims) == 0 || !m.claims[0].published {
		return nil, false
	}
	return m.claims[0].events[0], true
}

func (m *model) drop() {
	c := m.claims[0]
	if c.events = c.events[1:]; len(c.events) == 0 {
		m.claims = m.claims[1:]
	}
}

func (m *model) batch(t *rapid.T) [][]byte {
	out := make([][]byte, rapid.IntRange(0, 5).Draw(t, "batch"))
	for i := range out {
		m.next++
		out[i] = bytes.Repeat([]byte{m.next}, rapid.IntRange(0, m.ring.EventSize()).Draw(t, "length"))
	}
	return out
}

// took checks how many events the ring has taken, and notes them.
func (m *model) took(t *rapid.T, c *claim, n int, err error) {
	want := min(len(c.events), m.ring.Slots()-m.used())
	if n != want || (err == evring.ErrFull) != (n < len(c.events)) || err != nil && err != evring.ErrFull {
		t.Fatalf("took %d of %d, %v; want %d", n, len(c.events), err, want)
	}
	if c.events = c.events[:n]; n > 0 {
		m.claims = append(m.claims, c)
	}
}

func (m *model) push(t *rapid.T) {
	if m.single && len(m.pending()) > 0 {
		t.Skip("the producer is busy")
	}
	c := &claim{events: m.batch(t), published: true}
	n, err := m.ring.PushBatch(c.events)
	m.took(t, c, n, err)
}

func (m *model) claim(t *rapid.T) {
	if m.single && len(m.pending()) > 0 {
		t.Skip("the producer is busy")
	}
	c := &claim{events: m.batch(t)}
	pos, n, err := m.ring.Claim(len(c.events))
	c.pos = pos
	m.took(t, c, n, err)
}

func (m *model) publish(t *rapid.T) {
	pending := m.pending()
	if len(pending) == 0 {
		t.Skip("nothing is claimed")
	}
	c := rapid.SampledFrom(pending).Draw(t, "claim")
	m.ring.Publish(c.pos, c.events)
	c.published = true
}

func (m *model) pop(t *rapid.T) {
	buf := make([]byte, m.ring.EventSize())
	n, err := m.ring.Pop(buf)
	want, ok := m.first()
	if !ok {
		if err != evring.ErrEmpty {
			t.Fatalf("pop: %v, want ErrEmpty", err)
		}
		return
	}
	if err != nil || !bytes.Equal(buf[:n], want) {
		t.Fatalf("pop: %v, %v; want %v", buf[:n], err, want)
	}
	m.drop()
}

func (m *model) drain(t *rapid.T) {
	max := rapid.IntRange(0, 5).Draw(t, "max")
	n, err := m.ring.Drain(max, func(e []byte) {
		want, ok := m.first()
		if !ok || !bytes.Equal(e, want) {
			t.Fatalf("drained %v, want %v, %t", e, want, ok)
		}
		m.drop()
	})
	_, more := m.first()
	if err != nil || more && n != max {
		t.Fatalf("drained %d of at most %d, %v, and more was there: %t", n, max, err, more)
	}
}

func (m *model) sleep(t *rapid.T) {
	_, ready := m.first()
	if mayBlock := m.ring.Sleep(); mayBlock == ready {
		t.Fatalf("may block: %t, ready: %t", mayBlock, ready)
	}
	m.ring.Awake(false)
}
