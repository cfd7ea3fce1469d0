package tally_test

import (
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/penstock/penstock/proxy/internal/tally"
)

// TestUpstreamCounts: each counter is read, added up and taken away again, has its names, and is in the sums if it says so.
func TestUpstreamCounts(t *testing.T) {
	t.Parallel()

	var counts tally.UpstreamCounts
	v, sums := reflect.ValueOf(&counts).Elem(), 0
	for i := range v.NumField() {
		f := v.Type().Field(i)
		atomic.AddInt64(v.Field(i).Addr().Interface().(*int64), int64(i+1))
		if f.Tag.Get("json") == "" || f.Tag.Get("metric") == "" {
			t.Errorf("%s lacks a name", f.Name)
		}
		if f.Tag.Get("sum") != "" {
			sums++
		}
	}
	now := tally.Load(&counts)
	if now != counts || now.Retries != 1 {
		t.Errorf("%+v of %+v", now, counts)
	}
	total := now
	tally.Add(&total, &now, 1)
	tally.Add(&total, &now, -1)
	if total != now {
		t.Errorf("%+v, want %+v", total, now)
	}
	by := map[string]int64{"retries": 10}
	now.AddSums(by)
	if by["retries"] != 11 || len(by) != sums || len(tally.SumNames()) != sums {
		t.Errorf("%v, %v", by, tally.SumNames())
	}
}
