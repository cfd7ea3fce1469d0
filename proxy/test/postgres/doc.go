// Package postgres has real PostgreSQL servers behind a listener that speaks their protocol, and psql in front of it:
// TLS that is passed through, and TLS that ends here. It has no code but its tests.
package postgres
