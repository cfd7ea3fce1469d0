package pool_test

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"
	"weak"

	"github.com/penstock/penstock/pool"
	"pgregory.net/rapid"
)

func newBytes(t testing.TB, cfg pool.BytesConfig) *pool.Bytes {
	t.Helper()
	b, err := pool.NewBytes(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func mustGet(t testing.TB, b *pool.Bytes, n int) []byte {
	t.Helper()
	buf, err := b.Get(n)
	if err != nil {
		t.Fatalf("Get(%d): %v", n, err)
	}
	return buf
}

func TestBytesGetReturnsLeastClass(t *testing.T) {
	b := newBytes(t, pool.BytesConfig{MinSize: 1 << 10, MaxSize: 1 << 16})
	for _, tt := range []struct{ n, class int }{
		{0, 1 << 10},
		{1, 1 << 10},
		{1<<10 - 1, 1 << 10},
		{1 << 10, 1 << 10},
		{1<<10 + 1, 1 << 11},
		{1<<15 + 1, 1 << 16},
		{1 << 16, 1 << 16},
	} {
		buf := mustGet(t, b, tt.n)
		if len(buf) != tt.n || cap(buf) != tt.class {
			t.Errorf("Get(%d) has length %d and capacity %d, want capacity %d", tt.n, len(buf), cap(buf), tt.class)
		}
		b.Put(buf)
	}
	for _, n := range []int{-1, 1<<16 + 1, int(^uint(0) >> 1), -int(^uint(0)>>1) - 1} {
		if buf, err := b.Get(n); !errors.Is(err, pool.ErrSize) {
			t.Errorf("Get(%d) = %d bytes, %v; want ErrSize", n, len(buf), err)
		}
		if _, ok := b.TryGet(n); ok {
			t.Errorf("TryGet(%d) succeeded", n)
		}
	}
}

func TestBytesConfig(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg pool.BytesConfig
		ok  bool
	}{
		"zero":                          {pool.BytesConfig{}, true},
		"one class":                     {pool.BytesConfig{MinSize: 4096, MaxSize: 4096}, true},
		"only a large minimum":          {pool.BytesConfig{MinSize: 128 << 20}, true},
		"only a small maximum":          {pool.BytesConfig{MaxSize: 64}, true},
		"no bound":                      {pool.BytesConfig{Budget: -1}, true},
		"maximum below minimum":         {pool.BytesConfig{MinSize: 4096, MaxSize: 2048}, false},
		"negative minimum":              {pool.BytesConfig{MinSize: -1}, false},
		"negative maximum":              {pool.BytesConfig{MaxSize: -1}, false},
		"sizes beyond an int's shift":   {pool.BytesConfig{MaxSize: int(^uint(0) >> 1)}, false},
		"budget below largest class":    {pool.BytesConfig{MaxSize: 4096, Budget: 4095}, false},
		"budget below the rounded size": {pool.BytesConfig{MaxSize: 4095, Budget: 4095}, false},
		"negative idle time":            {pool.BytesConfig{IdleTime: -1}, false},
	} {
		b, err := pool.NewBytes(tt.cfg)
		if ok := err == nil; ok != tt.ok {
			t.Errorf("%s: NewBytes: %v", name, err)
		}
		if err == nil {
			b.Put(mustGet(t, b, 1))
			b.Close()
		}
	}
}

func TestBytesComeBack(t *testing.T) {
	b := newBytes(t, pool.BytesConfig{})
	buf := mustGet(t, b, 64<<10)
	first := unsafe.SliceData(buf)
	b.Put(buf[:10])
	again, ok := b.TryGet(40 << 10)
	if !ok {
		t.Fatal("TryGet found nothing after a Put")
	}
	if unsafe.SliceData(again) != first || len(again) != 40<<10 || cap(again) != 64<<10 {
		t.Errorf("another buffer, or of length %d and capacity %d", len(again), cap(again))
	}
	if _, ok := b.TryGet(64 << 10); ok {
		t.Error("TryGet made a buffer, or gave one twice")
	}
	b.Put(again)
}

func TestBytesBudgetSpent(t *testing.T) {
	b := newBytes(t, pool.BytesConfig{MinSize: 1 << 10, MaxSize: 4 << 10, Budget: 4 << 10})
	small := mustGet(t, b, 1<<10)
	if _, err := b.Get(4 << 10); !errors.Is(err, pool.ErrBudget) {
		t.Fatalf("Get beyond the budget: %v, want ErrBudget", err)
	}
	b.Put(small)
	// Idle bytes of another class make room.
	big := mustGet(t, b, 4<<10)
	if s := b.Stats(); s.Used != 4<<10 || s.IdleBytes != 0 || s.Refused != 1 {
		t.Errorf("stats after room was made: %+v", s)
	}
	if _, err := b.Get(1); !errors.Is(err, pool.ErrBudget) {
		t.Errorf("Get beyond the budget: %v, want ErrBudget", err)
	}
	b.Discard(big)
	if s := b.Stats(); s.Used != 0 || s.Discards != 1 {
		t.Errorf("stats after Discard: %+v", s)
	}
	b.Put(mustGet(t, b, 1))
}

func TestBytesClosed(t *testing.T) {
	b := newBytes(t, pool.BytesConfig{MaxSize: 4 << 10, Budget: 4 << 10})
	buf := mustGet(t, b, 4<<10)
	b.Close()
	for range 2 { // with the budget spent, and with room in it
		if _, err := b.Get(4 << 10); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Get after Close: %v, want ErrClosed", err)
		}
		if buf != nil {
			b.Put(buf)
			buf = nil
		}
	}
	if s := b.Stats(); s.Used != 0 || s.Made != s.Closed {
		t.Errorf("a buffer outlived Close: %+v", s)
	}
}

func TestBytesTrimAndSweep(t *testing.T) {
	b := newBytes(t, pool.BytesConfig{MinSize: 1 << 10, MaxSize: 4 << 10})
	fill := func() {
		bufs := [][]byte{mustGet(t, b, 1<<10), mustGet(t, b, 2<<10), mustGet(t, b, 4<<10)}
		for _, buf := range bufs {
			b.Put(buf)
		}
	}
	fill()
	if n := b.Trim(3 << 10); n != 4<<10 {
		t.Errorf("Trim(3 KiB) of 7 KiB in 1, 2 and 4 KiB dropped %d bytes", n)
	}
	if n := b.Trim(7 << 10); n != 0 {
		t.Errorf("Trim above the idle bytes dropped %d bytes", n)
	}
	if n := b.Trim(-1); n != 3<<10 {
		t.Errorf("Trim(-1) dropped %d bytes of 3 KiB", n)
	}
	fill()
	if n := b.Sweep() + b.Sweep(); n != 3 {
		t.Errorf("two intervals dropped %d idle buffers of 3", n)
	}
	if s := b.Stats(); s.Used != 0 {
		t.Errorf("%d bytes used after everything was swept", s.Used)
	}
}

// TestBytesModel holds the budget against a model. Get fails exactly when the
// leased bytes leave no room, whatever is idle. The account is exact at every
// step.
func TestBytesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const least, most = 64, 1024
		limit := int64(rapid.IntRange(most, 8*most).Draw(t, "budget"))
		b, err := pool.NewBytes(pool.BytesConfig{MinSize: least, MaxSize: most, Budget: limit})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var leased [][]byte
		var sum int64
		take := func(t *rapid.T) []byte {
			if len(leased) == 0 {
				t.Skip("nothing leased")
			}
			i := rapid.IntRange(0, len(leased)-1).Draw(t, "which")
			buf := leased[i]
			leased = append(leased[:i], leased[i+1:]...)
			sum -= int64(cap(buf))
			return buf[:rapid.IntRange(0, cap(buf)).Draw(t, "length")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				n := rapid.IntRange(0, most).Draw(t, "n")
				class := int64(least)
				for class < int64(n) {
					class *= 2
				}
				buf, err := b.Get(n)
				if fits := sum+class <= limit; fits != (err == nil) {
					t.Fatalf("Get(%d) with %d of %d bytes leased: %v", n, sum, limit, err)
				}
				if err == nil {
					leased, sum = append(leased, buf), sum+int64(cap(buf))
				} else if !errors.Is(err, pool.ErrBudget) {
					t.Fatal(err)
				}
			},
			"try get": func(t *rapid.T) {
				if buf, ok := b.TryGet(rapid.IntRange(0, most).Draw(t, "n")); ok {
					leased, sum = append(leased, buf), sum+int64(cap(buf))
				}
			},
			"put":     func(t *rapid.T) { b.Put(take(t)) },
			"discard": func(t *rapid.T) { b.Discard(take(t)) },
			"trim": func(t *rapid.T) {
				keep := rapid.Int64Range(0, limit).Draw(t, "keep")
				before := b.Stats().IdleBytes
				n := b.Trim(keep)
				if after := b.Stats().IdleBytes; after > keep || before-n != after {
					t.Fatalf("Trim(%d) of %d idle bytes dropped %d and left %d", keep, before, n, after)
				}
			},
			"sweep": func(*rapid.T) { b.Sweep() },
			"": func(t *rapid.T) {
				s := b.Stats()
				if s.Used > limit || s.Used != sum+s.IdleBytes || s.Live != int64(len(leased)) {
					t.Fatalf("%d bytes leased in %d buffers, stats %+v", sum, len(leased), s)
				}
			},
		})
	})
}

// TestBytesOwnership has many goroutines stamp the buffers that they lease under
// a budget that is always nearly spent: no two may hold one, and the budget is
// never exceeded while they run.
func TestBytesOwnership(t *testing.T) {
	const limit, least, most = 64 << 10, 1 << 10, 8 << 10
	b := newBytes(t, pool.BytesConfig{MinSize: least, MaxSize: most, Budget: limit})
	rounds := 3000
	if testing.Short() {
		rounds = 300
	}
	stop := make(chan struct{})
	var watcher, workers sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if n := b.Stats().Used; n < 0 || n > limit {
				t.Errorf("%d bytes used of %d", n, limit)
				return
			}
			runtime.Gosched()
		}
	})
	for id := range byte(8) {
		workers.Go(func() { stamp(t, b, id, rounds, most) })
	}
	workers.Wait()
	close(stop)
	watcher.Wait()
	if s := b.Stats(); s.Live != 0 || s.Used != s.IdleBytes || s.Foreign != 0 {
		t.Errorf("when all is put: %+v", s)
	}
}

func stamp(t *testing.T, b *pool.Bytes, id byte, rounds, most int) {
	for i := range rounds {
		buf, err := b.Get((i*977 + int(id)*131) % most)
		if errors.Is(err, pool.ErrBudget) {
			runtime.Gosched()
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		all := buf[:cap(buf)]
		for j := 0; j < len(all); j += 256 {
			all[j] = id
		}
		if i%4 == 0 {
			runtime.Gosched()
		}
		for j := 0; j < len(all); j += 256 {
			if all[j] != id {
				t.Errorf("buffer of %d bytes is in the hands of %d and %d", len(all), id, all[j])
				return
			}
		}
		if i%64 == 0 {
			b.Discard(buf)
		} else {
			b.Put(buf)
		}
	}
}

// collected reports whether the garbage collector drops the memory that p points
// at.
func collected[T any](p weak.Pointer[T]) bool {
	for range 10 {
		if p.Value() == nil {
			return true
		}
		runtime.GC()
	}
	return p.Value() == nil
}

func TestBytesForgotten(t *testing.T) {
	p := func() weak.Pointer[pool.Bytes] {
		b, err := pool.NewBytes(pool.BytesConfig{IdleTime: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		b.Put(mustGet(t, b, 1))
		return weak.Make(b)
	}()
	if !collected(p) {
		t.Error("something keeps a forgotten Bytes with an idle time alive")
	}
}

// TestBytesStatsSumUp: closed buffers are counted by reason, whatever the reason.
func TestBytesStatsSumUp(t *testing.T) {
	b, err := pool.NewBytes(pool.BytesConfig{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Get(1000)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.Put(p)
	s := b.Stats()
	if s.Closed != 1 || s.Closed != s.Evictions+s.Discards+s.Refusals+s.Overflows {
		t.Errorf("%+v", s)
	}
}
