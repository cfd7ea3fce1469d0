package admin

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/display"
)

func many() Status {
	var st Status
	for i := range 20 {
		u := Upstream{Name: fmt.Sprint("upstream-", i), Connects: Connects{Buckets: make([]int64, 9)}}
		for j := range 1000 {
			u.Endpoints = append(u.Endpoints, Endpoint{
				Name: fmt.Sprintf("endpoint-%d-%d", i, j), Address: fmt.Sprintf("10.0.%d.%d:8080", i, j), State: Up, Weight: 1, Active: 10,
				Answers: new(Answers), Limited: map[string]float64{"client": 100, "client_network": 20, "endpoint": 50, "idle": 1000},
			})
		}
		st.Upstreams = append(st.Upstreams, u)
	}
	return st
}

func BenchmarkZZ(b *testing.B) {
	st := many()
	b.Run("problems", func(b *testing.B) {
		for b.Loop() {
			problems(&st, time.Now())
		}
	})
	b.Run("filled", func(b *testing.B) {
		for b.Loop() {
			filled(st)
		}
	})
	v := filled(st)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			_ = newEncoder(display.NewWriter(io.Discard), "").Encode(v)
		}
	})
	b.Run("plain", func(b *testing.B) {
		for b.Loop() {
			_ = json.NewEncoder(io.Discard).Encode(v)
		}
	})
	text, _ := json.MarshalIndent(v, "", "  ")
	b.Run(fmt.Sprint("decode", len(text)), func(b *testing.B) {
		for b.Loop() {
			var s Status
			_ = json.Unmarshal(text, &s)
		}
	})
	b.Run("missing", func(b *testing.B) {
		for b.Loop() {
			missing("/v1/status", text)
		}
	})
}
