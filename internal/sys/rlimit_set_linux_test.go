package sys_test

import (
	"syscall"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

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
