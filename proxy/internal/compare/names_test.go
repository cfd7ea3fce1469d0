package compare

import "testing"

// TestNamesAreRedacted: reports have no text of clients in names, unless redact is false or a mask has it.
func TestNamesAreRedacted(t *testing.T) {
	grpc := requests2(t, "/sk_live_abc/def")
	for _, c := range []struct {
		framing, request, plain, redacted string
	}{
		{Resp, "*1\r\n$6\r\nS3CR3T\r\n", "S3CR3T", "other"},
		{Resp, "*1\r\n$3\r\nget\r\n", "GET", "GET"},
		{Postgres, "\x00\x00\x00\x08\x00\x03\x00\x00Q\x00\x00\x00\x0bsecret\x00", "SECRET", "other"},
		{HTTP1, "GET /sk_live_abcdef HTTP/1.1\r\n\r\n", "GET /sk_live_abcdef", "GET /*"},
		{HTTP1, "SECRET /a HTTP/1.1\r\n\r\n", "SECRET /a", "other"},
		{HTTP1, "GET / HTTP/1.1\r\n\r\n", "GET /", "GET /"},
		{GRPC, string(grpc), "/sk_live_abc/def", "/*"},
		{HTTP2, string(grpc), "POST /sk_live_abc", "POST /*"},
	} {
		plain := false
		for want, config := range map[string]Config{
			c.redacted:        {Framing: c.framing},
			c.plain:           {Framing: c.framing, Redact: &plain},
			c.plain + " mask": {Framing: c.framing, Mask: []Mask{{Pattern: "x", Name: c.plain}}},
		} {
			if config.Mask != nil {
				want = c.plain
				if c.framing == HTTP1 && c.redacted == "other" {
					continue // methods of HTTP are known, or not
				}
			}
			plan, err := NewPlan(config)
			if err != nil {
				t.Fatal(err)
			}
			r := NewReport()
			s := plan.NewSession(NewBudget(TotalBytes), r)
			s.Request([]byte(c.request), at(0))
			found := false
			for text := range *r.names.Load() {
				found = found || text == want
			}
			if text := c.plain; !found || want != text && has(r, text) {
				t.Errorf("%s %q: want %q, there are %v", c.framing, c.request, want, *r.names.Load())
			}
			s.End(false, at(0))
		}
	}
}

func has(r *Report, text string) bool {
	_, ok := (*r.names.Load())[text]
	return ok
}
