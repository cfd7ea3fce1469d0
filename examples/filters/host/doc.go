// Package host has the functions that a proxy offers to a filter, as docs/filters.md describes them, and the
// exports that every filter must have. A filter imports it, and exports proxy_on_new_connection or
// proxy_on_downstream_data. A module that rewrites streams, see docs/filters.md, imports it as well, and
// exports proxy_on_downstream_data or proxy_on_upstream_data.
//
// Its functions exist only for GOOS=wasip1:
//
//	GOOS=wasip1 GOARCH=wasm go doc github.com/penstock/penstock/examples/filters/host
package host
