package sys_test

import (
	"syscall"
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

func TestSetRlimitNoFile(t *testing.T) {
	soft, hard, err := sys.RlimitNoFileRange()
	if err != nil {
		t.Fatal(err)
	}
	want(t, "lower", 0, sys.SetRlimitNoFile(soft-1, hard), 0, nil)
	s, h, err := sys.RlimitNoFileRange()
	want(t, "soft", s, err, soft-1, nil)
	want(t, "hard", h, err, hard, nil)
	one, err := sys.RlimitNoFile()
	want(t, "soft alone", one, err, soft-1, nil)
	want(t, "restore", 0, sys.SetRlimitNoFile(soft, hard), 0, nil)
	want(t, "soft above hard", 0, sys.SetRlimitNoFile(hard+1, hard), 0, error(syscall.EINVAL))
}
