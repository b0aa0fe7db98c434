package catalog_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/redykv/redykv/internal/testrun"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(childEnv); address != "" {
		fmt.Println(stoppedLeader(address))
		return
	}
	testrun.Main(m)
}
