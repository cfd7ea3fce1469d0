package match_test

import (
	"fmt"

	"github.com/penstock/penstock/proxy/internal/match"
)

func ExampleTable_Find() {
	table, err := match.New([]match.Route{
		{SNI: []string{"shop.example.com"}, ALPN: []string{"h2"}},
		{SNI: []string{"*.example.com"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(table.Find(&match.Client{ServerName: "shop.example.com", ALPN: []string{"h2", "http/1.1"}}))
	fmt.Println(table.Find(&match.Client{ServerName: "shop.example.com"}))
	fmt.Println(table.Find(&match.Client{ServerName: "example.com"}))
	// Output:
	// 0
	// 1
	// -1
}
