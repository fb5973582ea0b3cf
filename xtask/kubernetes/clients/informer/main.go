// informer follows certificate signing requests as any controller does: with client-go's shared informer. It writes one
// JSON object per line for everything it is told, and ends when it has heard enough. Compiles with client-go 0.28 and later.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	certificates "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Line is what the informer was told.
type Line struct {
	Event           string `json:"event"` // add, update, delete, synced, fault
	Name            string `json:"name,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	UID             string `json:"uid,omitempty"`
	State           string `json:"state,omitempty"` // as in kubectl's column CONDITION
	Count           int    `json:"count,omitempty"` // of the objects in the store when it was synced
	Reason          string `json:"reason,omitempty"`
	Message         string `json:"message,omitempty"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "cluster and user")
	watchList := flag.Bool("watch-list", true, "begin with a stream (sendInitialEvents) rather than with a list")
	contentType := flag.String("content-type", "", "what to speak; empty: what client-go prefers")
	fieldSelector := flag.String("field-selector", "", "only these objects")
	untilCount := flag.Int("until-count", 0, "end after so many adds, updates and deletes; 0: never")
	timeout := flag.Duration("timeout", time.Minute, "end with a failure after so long")
	flag.Parse()

	// Releases before 0.30 look whether the first variable exists, later ones read the second.
	if *watchList {
		os.Setenv("ENABLE_CLIENT_GO_WATCH_LIST_ALPHA", "1")
	}
	os.Setenv("KUBE_FEATURE_WatchListClient", strconv.FormatBool(*watchList))

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = *contentType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	selected := informers.WithTweakListOptions(func(options *metav1.ListOptions) {
		if *fieldSelector != "" {
			options.FieldSelector = *fieldSelector
		}
	})
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, selected)
	informer := factory.Certificates().V1().CertificateSigningRequests().Informer()

	report := newReport(*untilCount)
	if err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		report.write(Line{Event: "fault", Reason: string(apierrors.ReasonForError(err)), Message: err.Error()})
	}); err != nil {
		return err
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { report.change("add", object) },
		UpdateFunc: func(_, object any) { report.change("update", object) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			report.change("delete", object)
		},
	}); err != nil {
		return err
	}

	stop := make(chan struct{})
	defer close(stop)
	factory.Start(stop)
	go func() {
		if cache.WaitForCacheSync(stop, informer.HasSynced) {
			report.write(Line{Event: "synced", Count: len(informer.GetStore().ListKeys())})
		}
	}()
	select {
	case <-report.enough:
		return nil
	case <-time.After(*timeout):
		if *untilCount == 0 {
			return nil
		}
		return errors.New("not enough events in " + timeout.String())
	}
}

// report writes lines in the order in which things were told, and closes enough after the last one that counts.
type report struct {
	lock   sync.Mutex
	left   int
	enough chan struct{}
}

func newReport(untilCount int) *report {
	return &report{left: untilCount, enough: make(chan struct{})}
}

func (r *report) change(event string, object any) {
	request, ok := object.(*certificates.CertificateSigningRequest)
	if !ok {
		r.write(Line{Event: "fault", Message: fmt.Sprintf("a %T came instead of a request", object)})
		return
	}
	r.write(Line{
		Event:           event,
		Name:            request.Name,
		ResourceVersion: request.ResourceVersion,
		UID:             string(request.UID),
		State:           state(&request.Status),
	})
}

func (r *report) write(line Line) {
	r.lock.Lock()
	defer r.lock.Unlock()
	text, err := json.Marshal(line)
	if err != nil {
		panic(err) // strings and numbers always have a text
	}
	os.Stdout.Write(append(text, '\n'))
	switch line.Event {
	case "add", "update", "delete":
		r.left--
		if r.left == 0 {
			close(r.enough)
		}
	}
}

func state(status *certificates.CertificateSigningRequestStatus) string {
	var words []string
	for _, condition := range status.Conditions {
		words = append(words, string(condition.Type))
	}
	if len(words) == 0 {
		words = append(words, "Pending")
	}
	if len(status.Certificate) > 0 {
		words = append(words, "Issued")
	}
	return strings.Join(words, ",")
}
