package blob

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	gcblob "gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob"

	"github.com/redykv/redykv/device"
	"github.com/redykv/redykv/device/devicetest"
	"github.com/redykv/redykv/internal/testrun"
)

// The built-in account of Azurite.
const (
	azuriteAccount = "devstoreaccount1"
	azuriteKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// azurite is a server for the API of Azure Blob Storage.
type azurite struct {
	t       *testing.T
	address string
	buckets atomic.Int64
}

// newAzurite starts a server. It skips the test if Azurite is not installed.
func newAzurite(t *testing.T) *azurite {
	t.Helper()
	testrun.SkipUnlessAll(t, "it starts Azurite")
	program, err := exec.LookPath("azurite-blob")
	if err != nil {
		t.Skip(err)
	}
	t.Setenv("AZURE_STORAGE_ACCOUNT", azuriteAccount)
	t.Setenv("AZURE_STORAGE_KEY", azuriteKey)
	cmd := exec.Command(program, "--blobHost", "127.0.0.1", "--blobPort", "0",
		"--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
	})
	listens := regexp.MustCompile(`listens on http://(\S+)`)
	hangs := time.AfterFunc(testrun.Patience(testrun.Bound), func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer hangs.Stop()
	said := ""
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if match := listens.FindStringSubmatch(lines.Text()); match != nil {
			return &azurite{t: t, address: match[1]}
		}
		said += lines.Text() + "\n"
	}
	t.Fatalf("azurite-blob does not listen: %s", said)
	return nil
}

// bucket creates a bucket.
func (a *azurite) bucket(t *testing.T) *gcblob.Bucket {
	t.Helper()
	b := openBucket(t, fmt.Sprintf("azblob://bucket%d?localemu=true&protocol=http&domain=%s", a.buckets.Add(1), a.address))
	var client *container.Client
	if !b.As(&client) {
		t.Fatal("the driver has no client")
	}
	if _, err := client.Create(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestAzure runs TestConformance and TestNewMachine on Azurite.
func TestAzure(t *testing.T) {
	a := newAzurite(t)
	t.Run("conformance", func(t *testing.T) {
		var b *gcblob.Bucket
		devicetest.Run(t, func(t *testing.T) device.Device {
			b = a.bucket(t)
			return mustOpen(t, device.NewMemory(), b, testOptions())
		}, devicetest.Reopen(func(t *testing.T, _ device.Device) device.Device {
			return mustOpen(t, device.NewMemory(), b, testOptions())
		}), devicetest.Size(256<<10))
	})
	t.Run("new machine", func(t *testing.T) { testNewMachine(t, a.bucket(t)) })
}
