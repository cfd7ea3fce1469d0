package metrics

import (
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/penstock/penstock/proxy/admin"
	"github.com/penstock/penstock/proxy/display"
	"github.com/penstock/penstock/proxy/internal/tally"
	"github.com/penstock/penstock/proxy/internal/verdict"
)

// The encoder writes once it has flushAt bytes.
const flushAt = 64 << 10

// An encoder writes series as text. After a failed write it does nothing, and keeps the error.
type encoder struct {
	to          io.Writer
	buf         []byte
	openMetrics bool
	family      *Family
	begun       bool                 // the family has a series
	labels      string               // labels of the present object
	made        map[[2]string]string // labels by name and value, see cached
	err         error
}

func (e *encoder) begin(f *Family) { e.family, e.begun = f, false }

func (e *encoder) head() {
	e.begun = true
	f, name := e.family, e.family.Name
	if e.openMetrics && f.Kind == Counter {
		name = strings.TrimSuffix(name, "_total")
	}
	e.buf = append(e.buf, "# HELP "...)
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, ' ')
	e.buf = append(e.buf, f.Help...)
	e.buf = append(e.buf, "\n# TYPE "...)
	e.buf = append(e.buf, name...)
	e.buf = append(e.buf, ' ')
	e.buf = append(e.buf, f.Kind...)
	e.buf = append(e.buf, '\n')
}

// name appends the name of a series with a suffix, and its labels with extra ones.
func (e *encoder) name(suffix, extra string) {
	if !e.begun {
		e.head()
	}
	b := append(e.buf, e.family.Name...)
	b = append(b, suffix...)
	if e.labels == "" { // of the process
		extra = strings.TrimPrefix(extra, ",")
	}
	if e.labels != "" || extra != "" {
		b = append(b, '{')
		b = append(b, e.labels...)
		b = append(b, extra...)
		b = append(b, '}')
	}
	e.buf = append(b, ' ')
}

// end ends a line, and writes the buffer if it is large.
func (e *encoder) end() {
	e.buf = append(e.buf, '\n')
	if len(e.buf) >= flushAt {
		e.flush()
	}
}

func (e *encoder) flush() {
	if e.err == nil {
		_, e.err = e.to.Write(e.buf)
	}
	e.buf = e.buf[:0]
}

// int writes a series. extra has more labels, each after a comma.
func (e *encoder) int(extra string, v int64) {
	e.name("", extra)
	e.buf = strconv.AppendInt(e.buf, v, 10)
	e.end()
}

func (e *encoder) bool(extra string, v bool) {
	n := int64(0)
	if v {
		n = 1
	}
	e.int(extra, n)
}

func (e *encoder) float(extra string, v float64) {
	e.name("", extra)
	e.buf = strconv.AppendFloat(e.buf, v, 'f', -1, 64)
	e.end()
}

func (e *encoder) timestamp(extra string, at time.Time) {
	if !at.IsZero() {
		e.float(extra, float64(at.UnixMilli())/1000)
	}
}

// bytes writes the bytes of both directions and engines.
func (e *encoder) bytes(b *Bytes) { e.bytesOf("", b) }

// bytesOf is bytes with extra labels before direction and engine.
func (e *encoder) bytesOf(extra string, b *Bytes) {
	e.int(extra+`,direction="client_to_endpoint",engine="splice"`, b.ClientToEndpoint.Spliced)
	e.int(extra+`,direction="client_to_endpoint",engine="copy"`, b.ClientToEndpoint.Copied)
	e.int(extra+`,direction="client_to_endpoint",engine="lane"`, b.ClientToEndpoint.Lane)
	e.int(extra+`,direction="endpoint_to_client",engine="splice"`, b.EndpointToClient.Spliced)
	e.int(extra+`,direction="endpoint_to_client",engine="copy"`, b.EndpointToClient.Copied)
	e.int(extra+`,direction="endpoint_to_client",engine="lane"`, b.EndpointToClient.Lane)
}

// limited writes seconds by verdict.
func (e *encoder) limited(seconds *[verdict.Kinds]float64) {
	for k, s := range seconds {
		e.float(verdictLabels[k], s)
	}
}

var verdictLabels = func() (labels [verdict.Kinds]string) {
	for k := range labels {
		labels[k] = label("verdict", verdict.Kind(k).String())
	}
	return labels
}()

func (e *encoder) closes(c *tally.Counts) {
	for why, n := range c.Closes {
		if n > 0 {
			e.int(closeLabels[why], n)
		}
	}
}

// closeNames are the labels of [tally.Close].
var closeNames = [tally.Closes][2]string{
	tally.ClientClosed: {"closed", "client"}, tally.EndpointClosed: {"closed", "endpoint"},
	tally.ClientReset: {"reset", "client"}, tally.EndpointReset: {"reset", "endpoint"},
	tally.ClientFailed: {"error", "client"}, tally.EndpointFailed: {"error", "endpoint"},
	tally.Idle: {"idle", "timeout"}, tally.HalfClose: {"half_close", "timeout"}, tally.Lifetime: {"lifetime", "timeout"},
	tally.FirstByte: {"first_byte", "timeout"}, tally.Canceled: {"canceled", "penstock"}, tally.Operator: {"operator", "operator"}, tally.Other: {"other", "unknown"},
}

var closeLabels = func() (labels [tally.Closes]string) {
	for why, name := range closeNames {
		labels[why] = `,reason="` + name[0] + `",by="` + name[1] + `"`
	}
	return labels
}()

func (e *encoder) histogram(labels *bucketLabels, h *tally.Histogram) {
	sum := int64(0)
	for i, n := range h.Buckets {
		sum += n
		e.name("_bucket", labels[i][e.dialect()])
		e.buf = strconv.AppendInt(e.buf, sum, 10)
		e.end()
	}
	e.sumAndCount("", h.Sum.Seconds(), sum)
}

// dialect returns the index of a bucket's label. The labels of OpenMetrics always have a fraction.
func (e *encoder) dialect() int {
	if e.openMetrics {
		return 1
	}
	return 0
}

// bucketLabels are the labels of buckets, in both dialects.
type bucketLabels [len(tally.ConnectBounds) + 1][2]string

var (
	connectLabels = labelsOf(tally.ConnectBounds[:])
	sessionLabels = labelsOf(tally.SessionBounds[:])
)

func labelsOf(bounds []time.Duration) (labels bucketLabels) {
	for i, bound := range bounds {
		labels[i] = leLabels(bound.Seconds())
	}
	labels[len(bounds)] = [2]string{`,le="+Inf"`, `,le="+Inf"`}
	return labels
}

func leLabels(bound float64) [2]string {
	text := strconv.FormatFloat(bound, 'g', -1, 64)
	open := text
	if !strings.ContainsAny(text, ".e") {
		open += ".0"
	}
	return [2]string{`,le="` + text + `"`, `,le="` + open + `"`}
}

// label returns a label with a quoted value, for a place behind another label.
func label(name, value string) string { return `,` + name + `="` + quoted(value) + `"` }

// firstLabel is label for the first label.
func firstLabel(name, value string) string { return name + `="` + quoted(value) + `"` }

var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// quoted returns the value of a label. Bytes that are not UTF-8, for example in a path, are escaped, so that two
// different values stay different.
func quoted(value string) string {
	for i := range len(value) {
		if c := value[i]; c >= utf8.RuneSelf || c == '\\' || c == '"' || c == '\n' {
			return escaper.Replace(valid(value))
		}
	}
	return value
}

// valid returns the text as UTF-8.
func valid(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return display.Text(text)
}

// list writes a series for each count, with one more label.
func (e *encoder) list(name string, counts []tally.Count) {
	for i := range counts {
		e.int(e.cached(name, counts[i].Of), counts[i].N)
	}
}

// cached is label for names with few values.
func (e *encoder) cached(name, value string) string {
	key := [2]string{name, value}
	text, ok := e.made[key]
	if !ok {
		text = label(name, value)
		e.made[key] = text
	}
	return text
}

// listOf is list in the order of the label's values, with extra labels before it.
func (e *encoder) listOf(extra, name string, counts map[string]int64) {
	for _, value := range sorted(counts) {
		e.int(extra+e.cached(name, value), counts[value])
	}
}

// each writes a series for each value, with one more label.
func (e *encoder) each(name string, of []string, values ...int64) {
	for i, n := range values {
		e.int(e.cached(name, of[i]), n)
	}
}

func (e *encoder) handshakes(h *admin.Handshakes) {
	if h != nil {
		e.each("resumed", []string{"false", "true"}, h.Completed-h.Resumed, h.Resumed)
	}
}

// handshakeFailures writes the failed handshakes by cause. Causes that did not occur are left out.
func (e *encoder) handshakeFailures(h *admin.Handshakes) {
	if h != nil {
		e.listOf("", "cause", h.Failed)
	}
}

func endOf(c *admin.Certificate) time.Time { return c.Ends }

// certificates writes a time of the certificates, once for each path.
func (e *encoder) certificates(list []admin.Certificate, of func(*admin.Certificate) time.Time) {
	seen := make(map[string]bool, len(list))
	for i := range list {
		if c := &list[i]; !seen[c.Path] {
			seen[c.Path] = true
			e.timestamp(label("path", c.Path), of(c))
		}
	}
}
