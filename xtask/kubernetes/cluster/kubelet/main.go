// kubelet is the part of a kubelet that gets certificates, in its three ways, and nothing else:
//
//	kubelet certificate-manager   bootstraps in the background, then rotates with its own certificate (rotateCertificates: true)
//	kubelet serving               gets and rotates a serving certificate (serverTLSBootstrap: true)
//	kubelet bootstrap-named       asks once, under a name made of the request (rotateCertificates: false)
//
// One JSON object per line and certificate.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	certificates "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"
)

// Line is a certificate that arrived.
type Line struct {
	Event     string    `json:"event"` // certificate
	Serial    string    `json:"serial"`
	Subject   string    `json:"subject"`
	NotBefore time.Time `json:"notBefore"`
	NotAfter  time.Time `json:"notAfter"`
	Names     []string  `json:"names,omitempty"`
	File      string    `json:"file"`
	User      string    `json:"user,omitempty"` // whom the server takes its owner for
}

type settings struct {
	kubeconfig, bootstrap string
	folder, node          string
	addresses             string
	lifetime              time.Duration
	aged                  bool
	count                 int
	timeout               time.Duration
}

func main() {
	klog.InitFlags(nil)
	if len(os.Args) < 2 {
		fail(errors.New("certificate-manager, serving or bootstrap-named?"))
	}
	var s settings
	flags := flag.CommandLine
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "cluster and user; certificate-manager and bootstrap-named write it")
	flags.StringVar(&s.bootstrap, "bootstrap-kubeconfig", "", "cluster and user until there is a certificate")
	flags.StringVar(&s.folder, "cert-dir", "", "where keys and certificates are kept")
	flags.StringVar(&s.node, "node", "", "the node's name")
	flags.StringVar(&s.addresses, "addresses", "", "of the node, for its serving certificate: DNS names and IP addresses, with commas")
	flags.DurationVar(&s.lifetime, "lifetime", 0, "to ask for (expirationSeconds); 0: no wish")
	flags.BoolVar(&s.aged, "aged", false, "take every certificate for nearly expired, so that it is rotated at once")
	flags.IntVar(&s.count, "count", 1, "end after so many certificates")
	flags.DurationVar(&s.timeout, "timeout", time.Minute, "end with a failure after so long")
	_ = flags.Parse(os.Args[2:]) // ends the program itself

	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	ways := map[string]func(context.Context, settings) error{
		"certificate-manager": client,
		"serving":             serving,
		"bootstrap-named":     named,
	}
	way, ok := ways[os.Args[1]]
	if !ok {
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
	if err := way(ctx, s); err != nil {
		fail(err)
	}
}

// client does what the kubelet's buildKubeletClientConfig does with rotation on.
func client(ctx context.Context, s settings) error {
	certConfig, clientConfig, err := bootstrap.LoadClientConfig(klog.FromContext(ctx), s.kubeconfig, s.bootstrap, s.folder)
	if err != nil {
		return err
	}
	certConfig.ContentType = protobuf
	clientConfig.ContentType = protobuf
	store, err := certificate.NewFileStore("kubelet-client", s.folder, s.folder, clientConfig.CertFile, clientConfig.KeyFile)
	if err != nil {
		return err
	}
	return rotate(ctx, s, store, clientConfig, certificate.Config{
		ClientsetFn: func(current *tls.Certificate) (kubernetes.Interface, error) {
			if current != nil {
				return kubernetes.NewForConfig(clientConfig)
			}
			return kubernetes.NewForConfig(certConfig)
		},
		Template:                &x509.CertificateRequest{Subject: subject(s.node)},
		SignerName:              certificates.KubeAPIServerClientKubeletSignerName,
		GetUsages:               certificate.DefaultKubeletClientGetUsages,
		BootstrapCertificatePEM: clientConfig.CertData,
		BootstrapKeyPEM:         clientConfig.KeyData,
	})
}

// serving does what the kubelet's NewKubeletServerCertificateManager does.
func serving(ctx context.Context, s settings) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = protobuf
	store, err := certificate.NewFileStore("kubelet-server", s.folder, s.folder, "", "")
	if err != nil {
		return err
	}
	template := x509.CertificateRequest{Subject: subject(s.node)}
	for _, address := range strings.Split(s.addresses, ",") {
		if ip := net.ParseIP(address); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, address)
		}
	}
	return rotate(ctx, s, store, nil, certificate.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) {
			return kubernetes.NewForConfig(config)
		},
		GetTemplate: func() *x509.CertificateRequest { return &template },
		SignerName:  certificates.KubeletServingSignerName,
		GetUsages:   certificate.DefaultKubeletServingGetUsages,
	})
}

// rotate lets client-go's manager work until enough certificates have arrived.
func rotate(ctx context.Context, s settings, store certificate.FileStore, owner *rest.Config, config certificate.Config) error {
	watched := &watchedStore{FileStore: store, aged: s.aged, updates: make(chan update, s.count)}
	config.CertificateStore = watched
	config.Name = s.node
	if s.lifetime > 0 {
		config.RequestedCertificateLifetime = &s.lifetime
	}
	manager, err := certificate.NewManager(&config)
	if err != nil {
		return err
	}
	manager.Start()
	defer manager.Stop()
	for range s.count {
		select {
		case update := <-watched.updates:
			if err := tell(ctx, update, owner); err != nil {
				return err
			}
		case <-ctx.Done():
			return errors.New("no certificate in " + s.timeout.String())
		}
	}
	return nil
}

// named does what the kubelet does with a bootstrap kubeconfig and rotation off.
func named(ctx context.Context, s settings) error {
	if err := bootstrap.LoadClientCert(ctx, s.kubeconfig, s.bootstrap, s.folder, types.NodeName(s.node)); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	store, err := certificate.NewFileStore("kubelet-client", s.folder, s.folder, "", "")
	if err != nil {
		return err
	}
	current, err := store.Current()
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(store.CurrentPath())
	if err != nil {
		return err
	}
	return tell(ctx, update{current.Leaf, store.CurrentPath(), pem, pem}, config)
}

// watchedStore is the kubelet's store; it says what is put into it.
type watchedStore struct {
	certificate.FileStore
	aged    bool
	updates chan update
}

type update struct {
	leaf             *x509.Certificate
	file             string
	certificate, key []byte
}

func (w *watchedStore) Update(certificate, key []byte) (*tls.Certificate, error) {
	stored, err := w.FileStore.Update(certificate, key)
	if err != nil {
		return nil, err
	}
	select {
	case w.updates <- update{stored.Leaf, w.CurrentPath(), certificate, key}:
	default: // more than were asked for
	}
	if w.aged {
		// The manager rotates at a random point between 70 % and 90 % of the lifetime: move the beginning so far
		// back that this point is in the past.
		leaf := *stored.Leaf
		leaf.NotBefore = time.Now().Add(-20 * time.Until(leaf.NotAfter))
		stored.Leaf = &leaf
	}
	return stored, nil
}

// tell writes a line about a certificate. With the configuration of its owner it is also used.
func tell(ctx context.Context, update update, owner *rest.Config) error {
	leaf := update.leaf
	line := Line{
		Event:     "certificate",
		Serial:    fmt.Sprintf("%x", leaf.SerialNumber),
		Subject:   leaf.Subject.String(),
		NotBefore: leaf.NotBefore,
		NotAfter:  leaf.NotAfter,
		Names:     leaf.DNSNames,
		File:      update.file,
	}
	for _, ip := range leaf.IPAddresses {
		line.Names = append(line.Names, ip.String())
	}
	if owner != nil {
		user, err := whoami(ctx, owner, update)
		if err != nil {
			return fmt.Errorf("certificate %s is no identity: %w", line.Serial, err)
		}
		line.User = user
	}
	return json.NewEncoder(os.Stdout).Encode(line)
}

func whoami(ctx context.Context, owner *rest.Config, update update) (string, error) {
	config := rest.AnonymousClientConfig(owner)
	config.CertData, config.KeyData = update.certificate, update.key
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	reviews := client.AuthenticationV1().SelfSubjectReviews()
	review, err := reviews.Create(ctx, &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return review.Status.UserInfo.Username, nil
}

func subject(node string) pkix.Name {
	return pkix.Name{Organization: []string{"system:nodes"}, CommonName: "system:node:" + node}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

const protobuf = "application/vnd.kubernetes.protobuf"
