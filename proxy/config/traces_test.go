package config_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/config"
)

// traced is a file with traces, in its first line.
func traced(traces string) string { return "traces: {" + traces + "}" + smallest }

// TestTraces: the errors of traces, each with its fix.
func TestTraces(t *testing.T) {
	cert, key := certificate(t, "a.example")
	for traces, want := range map[string]string{
		"sample: 1":                                                           "1:9: endpoint is missing | write endpoint: \"http://127.0.0.1:4317\"",
		"endpoint: 'c:4317'":                                                  `1:20: "c:4317" is not a URL of a collector | write http://127.0.0.1:4317 or https://collector.example:4317`,
		"endpoint: 'http://c'":                                                `1:20: "http://c" has no port | write http://c:4317, or :4318 for http/protobuf`,
		"endpoint: 'http://a b:1'":                                            `1:20: "http://a b:1" is not a URL of a collector | write http://127.0.0.1:4317 or https://collector.example:4317`,
		"endpoint: 'http://u:p@c:1'":                                          `1:20: the URL has more than a host and a path | write a token as an entry of headers`,
		"endpoint: 'http://c:1/v1/traces'":                                    `1:20: gRPC has no path "/v1/traces" | leave the path out, or write protocol: http/protobuf`,
		"endpoint: 'http://c:1', protocol: http":                              `1:44: protocol is one of grpc, http/protobuf, not "http" | write grpc or http/protobuf`,
		"endpoint: 'http://c:1', sample: 1%":                                  `1:42: sample is a number: "1%" is not a number | write it without %: 1`,
		"endpoint: 'http://c:1', resource: x":                                 `1:44: "x" is not KEY=VALUE | write service.name=edge`,
		"endpoint: 'http://c:1', tls: {}":                                     "1:39: tls is of no use with http:// | write https:// in endpoint, or leave tls out",
		"endpoint: 'https://c', tls: {cert: a}":                               "1:45: key is missing | write key: and the PEM file of its private key",
		"endpoint: 'https://c', tls: {cert: a, key: k}":                       "",
		"endpoint: 'https://c', tls: {ca: k}":                                 "1:43: there is no certificate in /etc/k | write a PEM file of certificates",
		"endpoint: 'https://c', headers: [{name: 'a b', value: '${T}'}]":      `1:50: "a b" is not the name of a header | write a name such as Authorization`,
		"endpoint: 'https://c', headers: [{name: TE, value: '${T}'}]":         `1:50: TE is the exporter's own | leave it out`,
		"endpoint: 'https://c', headers: [{name: A, value: 'file:/etc/k'}]":   "1:60: the value of A has 5 lines | leave one line in /etc/k",
		"endpoint: 'https://c:1', headers: [{name: A, value: 'Bearer ${T}'}]": "",
	} {
		_, problems := config.LoadTree(config.Tree{"/etc/p.yaml": traced(traces), "/etc/a": cert, "/etc/k": key}, "/etc/p.yaml", variables("T", "t0ken"))
		var got []string
		for _, p := range problems {
			got = append(got, short(p))
		}
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s\n got %s\nwant %s", traces, text, want)
		}
	}
	var got []string
	for _, w := range withToken(t, traced("endpoint: 'http://collector.example:4317', headers: [{name: A, value: 'file:b'}], sample: 0, max_queue_size: 1, max_export_batch_size: 2")).Warnings {
		got = append(got, short(w))
	}
	if want := []string{
		"1:63: headers, which may be secrets, go over the network in plain text | write https://",
		"1:100: sample: 0 traces no client | leave traces out, or write a percentage",
		"1:145: a batch of 2 spans is never complete, for 1 wait at most | write at most max_queue_size",
	}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// withToken loads a text that reads a token from /etc/b.
func withToken(t *testing.T, text string) *config.Config {
	t.Helper()
	return loadTree(t, config.Tree{"/etc/p.yaml": text, "/etc/b": "t0ken"})
}

// TestTracesChange: a plan has each key that changes, and no secret.
func TestTracesChange(t *testing.T) {
	a := withToken(t, traced("endpoint: 'http://localhost:4317', headers: [{name: A, value: 'file:b'}]"))
	b := withToken(t, traced("endpoint: 'http://localhost:4317', sample: 5, headers: [{name: A, value: 'file:b'}]"))
	var got []string
	for _, c := range slices.Concat(config.Diff(load(t, smallest), a), config.Diff(a, b), config.Diff(b, load(t, smallest))) {
		got = append(got, c.String())
	}
	if want := []string{"traces added", "traces changed: sample: 1 → 5", "traces removed"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if a.Traces.Same(b.Traces) || !a.Traces.Same(withToken(t, "\n"+traced("headers: [{name: A, value: 'file:b'}], endpoint: 'http://localhost:4317'")).Traces) {
		t.Error("the same traces differ, or others do not")
	}
}
