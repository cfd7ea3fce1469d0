package admin_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/software"
	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/rollback"
)

// The status has the pending reload, its time limit and its rollback condition.
func TestStatusSaysWhatIsPending(t *testing.T) {
	r := newRig(t, "")
	pending := func() *rollback.Waiting {
		t.Helper()
		s, err := r.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Pending
	}
	if p := pending(); p != nil {
		t.Errorf("at first: %+v", p)
	}
	if _, err := r.Reload(t.Context(), rollback.Options{Confirm: time.Hour, RollbackIf: "failures>50"}); err != nil {
		t.Fatal(err)
	}
	if p := pending(); p == nil || p.Generation != 2 || p.RollbackIf != "failures>50" || time.Until(p.Until) < 50*time.Minute {
		t.Errorf("after a reload: %+v", p)
	}
	if _, err := r.Confirm(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if p := pending(); p != nil {
		t.Errorf("after it was confirmed: %+v", p)
	}
}

// A requested drain of the process is logged with its source, once: a second request changes nothing.
func TestDrainIsLogged(t *testing.T) {
	var log software.Output
	s := admin.New(admin.Config{
		Balancer: new(balancer), Reloader: new(reloader), Stop: func() {}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	defer s.Close(t.Context())
	m, err := s.Prepare(t.Context(), access("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	m.Commit()
	c, err := admin.NewClientAs(s.Addr(), &admin.Credentials{Token: changeToken})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), `by="token=change" what=drain from=serving to=draining`); n != 1 {
		t.Errorf("%d times: %s", n, log.String())
	}
}
