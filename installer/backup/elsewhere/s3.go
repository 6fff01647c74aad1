package elsewhere

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"airlift/installer/backup/target"
)

// tokenHeader is the name of the metadata of an object with the token of its copy, as minio-go returns it.
const tokenHeader = "Airlift-Token"

// An s3 is a bucket.
type s3 struct {
	client    *minio.Client
	transport *http.Transport
	bucket    string
	prefix    string
	file      string // with the credentials
}

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func newS3(a target.Address, c *target.Config, dial dialFunc, patience time.Duration) (backend, error) {
	s := &s3{bucket: a.Bucket, prefix: a.Path, file: c.File}
	endpoint, err := url.Parse(c.S3.Endpoint)
	if err != nil {
		return s, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.S3.CA != "" {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM([]byte(c.S3.CA))
	}
	// The transport of minio-go uses the proxy of the environment.
	s.transport = &http.Transport{DialContext: dial, TLSClientConfig: config, TLSHandshakeTimeout: min(patience, 20*time.Second), DisableCompression: true,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: min(patience, 30*time.Second)}
	region, lookup := c.S3.Region, minio.BucketLookupPath
	if region == "" { // or minio-go asks for the region of the bucket
		region = "us-east-1"
	}
	if c.S3.PathStyle != nil && !*c.S3.PathStyle {
		lookup = minio.BucketLookupDNS
	}
	s.client, err = minio.New(endpoint.Host, &minio.Options{
		Creds: credentials.NewStaticV4(c.S3.AccessKey, c.S3.SecretKey, ""), Secure: endpoint.Scheme == "https",
		Transport: bounded{s.transport}, Region: region, BucketLookup: lookup, MaxRetries: 3,
	})
	return s, err
}

// Limits of what a server can make minio-go keep in memory.
const (
	maxAnswer = 1 << 20
	pageSize  = 250 // objects, whose keys have at most 1024 bytes: such a page is smaller than maxAnswer
	maxList   = 64 << 20
	minAnswer = 32 << 10 // of maxList, so that the number of answers is limited, too
)

// bounded limits the answers that are not the content of an object.
type bounded struct{ *http.Transport }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	left, isList := r.Context().Value(listKey{}).(*atomic.Int64)
	if isList && left.Add(-minAnswer) < 0 {
		return nil, fmt.Errorf("%w: its list is larger than %d MB", errTooMuch, maxList>>20)
	}
	answer, err := b.Transport.RoundTrip(r)
	if err == nil && (isList || r.Method != http.MethodGet) {
		answer.Body = &limitedBody{answer.Body, maxAnswer, left}
	}
	return answer, err
}

// listKey is of the context of requests that list something: it has how many bytes may follow.
type listKey struct{}

func listing(ctx context.Context) context.Context {
	left := new(atomic.Int64)
	left.Store(maxList)
	return context.WithValue(ctx, listKey{}, left)
}

type limitedBody struct {
	io.ReadCloser
	left int64
	list *atomic.Int64 // nil unless it is a part of a list
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 || b.list != nil && b.list.Add(-int64(n)) < 0 {
		return 0, fmt.Errorf("%w: its answer is larger than %d MB, or its list than %d MB", errTooMuch, maxAnswer>>20, maxList>>20)
	}
	return n, err
}

func (s *s3) close() { s.transport.CloseIdleConnections() }

func (s *s3) key(name string) string { return path.Join(s.prefix, name) }

// send stores an object, which has its name only when it is complete.
func (s *s3) send(ctx context.Context, c *target.Copy, in *os.File) error {
	info, err := s.client.PutObject(ctx, s.bucket, s.key(c.Name), in, c.Size, minio.PutObjectOptions{
		ContentType: "application/octet-stream", UserMetadata: map[string]string{tokenHeader: c.Token}, NumThreads: 2,
		SendContentMd5: true, // a bucket with object lock demands it
	})
	c.Version = info.VersionID
	return err
}

func (s *s3) open(ctx context.Context, c *target.Copy, _ bool) (io.ReadCloser, error) {
	core := minio.Core{Client: s.client}
	body, _, _, err := core.GetObject(ctx, s.bucket, s.key(c.Name), minio.GetObjectOptions{VersionID: c.Version})
	if err != nil {
		return nil, missing(err)
	}
	return body, nil
}

func missing(err error) error {
	if code := minio.ToErrorResponse(err).Code; code == minio.NoSuchKey || code == "NoSuchVersion" || code == "MethodNotAllowed" { // a delete marker
		return ErrMissing
	}
	return err
}

func (*s3) settle(context.Context, *target.Copy) error { return nil }

// clean aborts the uploads of this name: nobody else uses it, because it has the node, the revision and the time.
func (s *s3) clean(ctx context.Context, c *target.Copy) error {
	err := s.client.RemoveIncompleteUpload(listing(ctx), s.bucket, s.key(c.Name))
	if minio.ToErrorResponse(err).Code == minio.AccessDenied { // the server may remove them itself
		return nil
	}
	return err
}

// identify: another object may have got the name since it was compared, in a bucket that keeps no versions.
func (s *s3) identify(ctx context.Context, c *target.Copy) error { return s.find(ctx, c) }

func (s *s3) find(ctx context.Context, c *target.Copy) error {
	info, err := s.client.StatObject(ctx, s.bucket, s.key(c.Name), minio.StatObjectOptions{VersionID: c.Version})
	if err != nil {
		return missing(err)
	}
	if info.UserMetadata[tokenHeader] != c.Token {
		return ErrOther
	}
	c.Version = info.VersionID
	return nil
}

func (s *s3) remove(ctx context.Context, c *target.Copy) error {
	return s.client.RemoveObject(ctx, s.bucket, s.key(c.Name), minio.RemoveObjectOptions{VersionID: c.Version})
}

func (s *s3) stat(ctx context.Context, name string) (Item, error) {
	info, err := s.client.StatObject(ctx, s.bucket, s.key(name), minio.StatObjectOptions{})
	return Item{name, info.Size}, missing(err)
}

func (s *s3) list(ctx context.Context) (list []Item, err error) {
	prefix := s.prefix
	if prefix != "" {
		prefix += "/"
	}
	ctx, stop := context.WithCancel(listing(ctx))
	defer stop()
	n := 0
	for o := range s.client.ListObjectsIter(ctx, s.bucket, minio.ListObjectsOptions{Prefix: prefix, MaxKeys: pageSize}) {
		if o.Err != nil {
			return nil, o.Err
		}
		if n++; n > maxItems {
			return nil, fmt.Errorf("%w: more than %d objects", errTooMuch, maxItems)
		}
		if name := strings.TrimPrefix(o.Key, prefix); name != "" && !strings.Contains(name, "/") {
			list = append(list, Item{name, o.Size})
		}
	}
	return list, nil
}

func (s *s3) explain(err error) (text, hint string) {
	answer := minio.ToErrorResponse(err)
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &authority):
		return "the certificate of the server is of an unknown CA", "write the certificate of its CA as s3.ca in " + s.file
	case errors.As(err, &certificate):
		return certificate.Error(), "compare the name in s3.endpoint and the clock of this host (timedatectl) with the certificate of the server"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "the server does not use TLS", "write http:// in s3.endpoint of " + s.file + ", or switch TLS on at the server"
	case answer.Code == minio.NoSuchBucket:
		return "the bucket " + s.bucket + " does not exist", "create it at the server, or correct the URL of the target"
	case answer.Code == "InvalidAccessKeyId", answer.Code == minio.SignatureDoesNotMatch, answer.Code == "InvalidSecurity", answer.Code == "XAdminUserNotFound": // of versitygw
		return "the server does not accept the credentials: " + answer.Code, "correct s3.accessKey and s3.secretKey, and s3.region, in " + s.file
	case answer.Code == "RequestTimeTooSkewed", answer.Code == "RequestExpired":
		return "the clocks of this host and of the server differ too much", "compare them: timedatectl on this host, and on the server"
	case answer.Code == minio.AuthorizationHeaderMalformed, answer.Code == "InvalidRegion":
		return "the server has another region: " + answer.Message, "write its region as s3.region in " + s.file
	case answer.Code == minio.AccessDenied, answer.StatusCode == http.StatusForbidden:
		return "the server refuses it: access denied", "allow s3:ListBucket, s3:GetObject and s3:PutObject for the prefix, and s3:DeleteObject for the removal of old backups, in a bucket with versions also s3:GetObjectVersion and s3:DeleteObjectVersion; an object with a retention cannot be removed before it ends"
	case answer.StatusCode == http.StatusInsufficientStorage, strings.Contains(answer.Code, "StorageFull"), strings.Contains(answer.Code, "Quota"), answer.Code == "EntityTooLarge":
		return "the target is full: " + answer.Code, "free some space at the target, raise its quota, or keep fewer backups: --keep"
	case answer.StatusCode >= 500 || answer.Code == "SlowDown":
		return fmt.Sprintf("the server failed: status %d, %s", answer.StatusCode, answer.Code), "look at the log of the server"
	case answer.Code != "" && answer.StatusCode != 0:
		return fmt.Sprintf("the server answered with status %d, %s: %s", answer.StatusCode, answer.Code, answer.Message), "check that s3.endpoint is a server of S3"
	}
	return "", ""
}
