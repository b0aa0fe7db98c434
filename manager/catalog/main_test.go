package catalog_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(childEnv); address != "" {
		fmt.Println(stoppedLeader(address))
		return
	}
	goleak.VerifyTestMain(m)
}
