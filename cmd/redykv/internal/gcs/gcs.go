// Package gcs is a driver of gocloud.dev/blob for Google Cloud Storage, with what package
// device/blob uses. It opens URLs of scheme gs, as gocloud.dev/blob/gcsblob does, and uses the
// JSON API over HTTP alone.
//
// It exists for the program's start time: gcsblob links gRPC, xDS and the monitoring of
// cloud.google.com/go/storage. Their initialization took 10 of the 29 ms of processor time of
// each command, and 25 MB of the executable.
package gcs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"
	"gocloud.dev/gcp"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"
)

func init() { blob.DefaultURLMux().RegisterBucket("gs", opener{}) }

type opener struct{}

// OpenBucketURL opens gs://BUCKET with the default credentials of the environment.
// anonymous=true or access_id=- uses none; universe_domain selects another cloud than
// googleapis.com. Other values of access_id, and private_key_path, only affect signed URLs,
// which this driver does not make. $STORAGE_EMULATOR_HOST replaces Google's servers.
func (opener) OpenBucketURL(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	b, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("open bucket %v: %w", u, err)
	}
	return blob.NewBucket(b), nil
}

func open(ctx context.Context, u *url.URL) (*bucket, error) {
	if u.Host == "" {
		return nil, errors.New("the bucket's name is missing")
	}
	query := u.Query()
	for key := range query {
		if !slices.Contains([]string{"anonymous", "access_id", "private_key_path", "universe_domain"}, key) {
			return nil, fmt.Errorf("invalid query parameter %q", key)
		}
	}
	anonymous, err := strconv.ParseBool(cmp.Or(query.Get("anonymous"), "false"))
	if err != nil {
		return nil, fmt.Errorf("query parameter anonymous: %w", err)
	}
	var opts []option.ClientOption
	if host := os.Getenv("STORAGE_EMULATOR_HOST"); host != "" {
		if !strings.Contains(host, "://") {
			host = "http://" + host
		}
		opts = append(opts, option.WithHTTPClient(http.DefaultClient), option.WithEndpoint(host+"/storage/v1/"))
	} else if anonymous || query.Get("access_id") == "-" {
		opts = append(opts, option.WithHTTPClient(&gcp.NewAnonymousHTTPClient(gcp.DefaultTransport()).Client))
	} else {
		creds, err := gcp.DefaultCredentialsWithParams(ctx, google.CredentialsParams{UniverseDomain: query.Get("universe_domain")})
		if err != nil {
			return nil, err
		}
		client, err := gcp.NewHTTPClient(gcp.DefaultTransport(), creds.TokenSource)
		if err != nil {
			return nil, err
		}
		domain, err := creds.GetUniverseDomain()
		if err != nil {
			return nil, err
		}
		opts = append(opts, option.WithHTTPClient(&client.Client), option.WithUniverseDomain(domain))
	}
	service, err := storage.NewService(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return &bucket{name: u.Host, objects: service.Objects}, nil
}

// bucket implements driver.Bucket.
type bucket struct {
	name    string
	objects *storage.ObjectsService
}

// ErrorCode maps the status of an HTTP response. Google answers 403 if an object may be
// missing or forbidden. As in gcsblob, it counts as missing.
func (b *bucket) ErrorCode(err error) gcerrors.ErrorCode {
	if api, ok := errors.AsType[*googleapi.Error](err); ok {
		switch api.Code {
		case http.StatusForbidden, http.StatusNotFound:
			return gcerrors.NotFound
		case http.StatusPreconditionFailed:
			return gcerrors.FailedPrecondition
		}
	}
	return gcerrors.Unknown
}

func (b *bucket) As(any) bool             { return false }
func (b *bucket) ErrorAs(error, any) bool { return false }
func (b *bucket) Close() error            { return nil }

func (b *bucket) Attributes(ctx context.Context, key string) (*driver.Attributes, error) {
	o, err := b.objects.Get(b.name, key).Context(ctx).Do()
	if err != nil {
		return nil, err
	}
	return &driver.Attributes{ContentType: o.ContentType, ModTime: timeOf(o), Size: int64(o.Size)}, nil
}

// timeOf returns the time of an object's last change, or the zero time if it has none.
func timeOf(o *storage.Object) time.Time {
	t, _ := time.Parse(time.RFC3339, o.Updated)
	return t
}

// ListPaged lists the objects of a prefix, in the order of their names. It has no delimiters.
func (b *bucket) ListPaged(ctx context.Context, opts *driver.ListOptions) (*driver.ListPage, error) {
	call := b.objects.List(b.name).Prefix(opts.Prefix).PageToken(string(opts.PageToken))
	list, err := call.MaxResults(int64(cmp.Or(opts.PageSize, 1000))).Context(ctx).Do()
	if err != nil {
		return nil, err
	}
	page := &driver.ListPage{NextPageToken: []byte(list.NextPageToken)}
	for _, o := range list.Items {
		page.Objects = append(page.Objects, &driver.ListObject{Key: o.Name, ModTime: timeOf(o), Size: int64(o.Size)})
	}
	return page, nil
}

// reader implements driver.Reader.
type reader struct {
	io.ReadCloser
	attributes driver.ReaderAttributes
}

func (r *reader) Attributes() *driver.ReaderAttributes { return &r.attributes }
func (r *reader) As(any) bool                          { return false }

// NewRangeReader reads length bytes from offset, or all from there if length is negative.
func (b *bucket) NewRangeReader(ctx context.Context, key string, offset, length int64, _ *driver.ReaderOptions) (driver.Reader, error) {
	if length == 0 { // HTTP has no empty range
		a, err := b.Attributes(ctx, key)
		if err != nil {
			return nil, err
		}
		return &reader{http.NoBody, driver.ReaderAttributes{ContentType: a.ContentType, ModTime: a.ModTime, Size: a.Size}}, nil
	}
	call := b.objects.Get(b.name, key).Context(ctx)
	if length > 0 {
		call.Header().Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	} else if offset > 0 {
		call.Header().Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	response, err := call.Download() //nolint:bodyclose // the reader closes it
	if err != nil {
		return nil, err
	}
	a := driver.ReaderAttributes{ContentType: response.Header.Get("Content-Type"), Size: response.ContentLength}
	a.ModTime, _ = http.ParseTime(response.Header.Get("Last-Modified"))
	if _, total, ok := strings.Cut(response.Header.Get("Content-Range"), "/"); ok {
		a.Size, _ = strconv.ParseInt(total, 10, 64)
	}
	return &reader{response.Body, a}, nil
}

// writer implements driver.Writer. A pipe connects it to the request, which a goroutine runs.
// The object exists only when Close has returned nil.
type writer struct {
	*io.PipeWriter
	ctx   context.Context
	ended chan error
}

// NewTypedWriter returns a writer of an object without metadata.
func (b *bucket) NewTypedWriter(ctx context.Context, key, contentType string, opts *driver.WriterOptions) (driver.Writer, error) {
	from, to := io.Pipe()
	call := b.objects.Insert(b.name, &storage.Object{Name: key, ContentType: contentType}).Context(ctx)
	media := []googleapi.MediaOption{googleapi.ContentType(contentType)}
	if opts.BufferSize > 0 {
		media = append(media, googleapi.ChunkSize(opts.BufferSize))
	}
	if opts.IfNotExist {
		call.IfGenerationMatch(0)
	}
	w := &writer{to, ctx, make(chan error, 1)}
	go func() {
		_, err := call.Media(from, media...).Do()
		_ = from.CloseWithError(cmp.Or(err, io.ErrClosedPipe)) // fails later writes
		w.ended <- err
	}()
	return w, nil
}

func (w *writer) Close() error {
	_ = w.CloseWithError(w.ctx.Err()) // nil: the end of the object
	return <-w.ended
}

func (b *bucket) Delete(ctx context.Context, key string) error {
	return b.objects.Delete(b.name, key).Context(ctx).Do()
}

// Copy is not implemented.
func (b *bucket) Copy(context.Context, string, string, *driver.CopyOptions) error {
	return errors.ErrUnsupported
}

// SignedURL is not implemented.
func (b *bucket) SignedURL(context.Context, string, *driver.SignedURLOptions) (string, error) {
	return "", errors.ErrUnsupported
}
