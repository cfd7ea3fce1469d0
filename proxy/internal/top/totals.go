package top

import (
	"fmt"

	"github.com/penstock/penstock/proxy/admin"
)

// totals is a line on the whole process.
func (p *picture) totals(c *admin.Connections) string {
	active := fmt.Sprint(c.Active)
	if c.Most > 0 {
		active = fmt.Sprintf("%d/%d", c.Active, c.Most)
	}
	return fmt.Sprintf("clients %s  new %s/s  refused %s/s  in %s/s  out %s/s  lag %s, longest %s",
		active, p.accepted.count(), p.refused.count(), p.flow.in.bytes(), p.flow.out.bytes(), span(p.lag.P99).text, span(p.lag.Longest).text)
}
