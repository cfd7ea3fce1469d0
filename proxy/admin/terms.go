package admin

import (
	"regexp"
	"strings"
)

// Parts of refusals, in terms of HTTP.
const (
	writeToken      = "write the header Authorization: Bearer TOKEN"
	showCertificate = "show a certificate of client_ca in the TLS handshake"
)

// commandTerms has the parts of refusals in terms of HTTP in those of the commands.
var commandTerms = strings.NewReplacer(
	writeToken, "write --token-file FILE",
	showCertificate, "write --cert FILE --key FILE",
	"GET /v1/sessions", "penstock sessions",
	"rollback_if", "rollback-if",
)

// endpointRequest is a request to change an endpoint.
var endpointRequest = regexp.MustCompile(`POST /v1/endpoint/(\w+)\?upstream=(\S+?)&endpoint=(\S+)`)

// inCommandTerms returns a refusal for the commands, which a [Client] is for.
func inCommandTerms(text string) string {
	return endpointRequest.ReplaceAllString(commandTerms.Replace(text), "penstock endpoint $1 $2 $3")
}
