package admin_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/penstock/penstock/internal/doctor"
	"github.com/penstock/penstock/proxy/admin"
)

// TestProcessReport: a client gets the report of the process as it is; a server that has none says so.
func TestProcessReport(t *testing.T) {
	r := newRig(t, "127.0.0.1:0")
	client := r.Client
	var refusal *admin.Refusal
	if _, err := client.Process(t.Context()); !errors.As(err, &refusal) || refusal.Code != http.StatusNotFound {
		t.Errorf("without a report: %v", err)
	}
	report := &doctor.Report{Checks: []doctor.Check{{Name: "pipes", State: doctor.Degraded, Found: "few", Cost: "copying", Mend: []string{"more"}}}, Place: "on a machine", Able: true, PID: 7}
	s := admin.New(admin.Config{Balancer: &r.balancer, Reloader: &r.reloader, Process: func() *doctor.Report { return report }})
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	m, err := s.Prepare(t.Context(), access("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	m.Commit()
	if client, err = admin.NewClientAs(s.Addr(), &admin.Credentials{Token: changeToken}); err != nil {
		t.Fatal(err)
	}
	got, err := client.Process(t.Context())
	if err != nil || got.PID != 7 || !got.Able || got.Place != "on a machine" || len(got.Checks) != 1 || got.Checks[0].State != doctor.Degraded || got.Checks[0].Mend[0] != "more" {
		t.Errorf("%v: %+v", err, got)
	}
}
