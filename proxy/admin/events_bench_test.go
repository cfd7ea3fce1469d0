package admin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/admin"
)

// BenchmarkEvents makes the event of a status with 10,000 endpoints in 100 upstreams, all of which have changed: the
// cost beside the status itself, once a second for all streams, and its size.
func BenchmarkEvents(b *testing.B) {
	var st admin.Status
	for i := range 100 {
		u := admin.Upstream{Name: fmt.Sprint("upstream-", i), Connects: admin.Connects{Buckets: make([]int64, 9)}}
		for j := range 100 {
			u.Endpoints = append(u.Endpoints, admin.Endpoint{
				Name: fmt.Sprintf("endpoint-%d-%d", i, j), Address: fmt.Sprintf("10.0.%d.%d:8080", i, j), State: admin.Up, Weight: 1, Active: 10,
				Answers: new(admin.Answers), Limited: map[string]float64{"client": 100, "client_network": 20, "endpoint": 50, "idle": 1000},
			})
		}
		st.Upstreams = append(st.Upstreams, u)
	}
	events := admin.NewEvents()
	first := events(&st, time.Now())
	b.ReportAllocs()
	var size int
	for n := int64(1); b.Loop(); n++ {
		for i := range st.Upstreams {
			u := &st.Upstreams[i]
			u.Bytes.EndpointToClient.Spliced += 1 << 20
			for j := range u.Endpoints {
				e := &u.Endpoints[j]
				e.Total += n % 3
				e.Answers.Made, e.Answers.SumUs = e.Total, 2000*e.Total
				e.Limited["endpoint"] += 0.25
				e.Bytes.EndpointToClient.Spliced += 100_000 * n
			}
		}
		size = len(events(&st, time.Now()))
	}
	b.ReportMetric(float64(size), "bytes")
	b.ReportMetric(float64(len(first)), "first-bytes")
}
