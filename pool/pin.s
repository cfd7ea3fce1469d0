//go:build !penstock_nolinkname

// An assembly file, though empty, lets functions be declared without a body.
