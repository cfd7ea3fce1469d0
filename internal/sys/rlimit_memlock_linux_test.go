package sys_test

import (
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func TestSetRlimitMemlock(t *testing.T) {
	before, err := sys.RlimitMemlock()
	if err != nil {
		t.Fatal(err)
	}
	for _, limit := range []uint64{0, before} {
		if err := sys.SetRlimitMemlock(limit); err != nil {
			t.Fatal(err)
		}
		got, err := sys.RlimitMemlock()
		want(t, "soft limit", got, err, limit, nil)
	}
}
