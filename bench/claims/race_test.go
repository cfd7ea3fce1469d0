//go:build race

package claims_test

func init() { raced = true }
