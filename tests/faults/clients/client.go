// franz-go; see clients/__init__.py for the lines.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	ctx, producers := context.Background(), map[string]*kgo.Client{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 4_000_000)
	for lines.Scan() {
		said := strings.Split(lines.Text(), "\t")
		number, codec, end := said[0], said[1], said[2]
		name := codec + "/" + end
		if end != "" {
			name = codec + "/transaction"
		}
		if producers[name] == nil {
			options := []kgo.Opt{
				kgo.SeedBrokers(strings.Split(os.Args[1], ",")...), kgo.ProducerBatchCompression(codecs[codec]),
				kgo.ProducerLinger(20 * time.Millisecond), kgo.ProducerBatchMaxBytes(2_000_000),
			}
			if end != "" {
				options = append(options, kgo.TransactionalID(os.Args[2]+"-"+codec))
			}
			made, err := kgo.NewClient(options...)
			if err != nil {
				panic(err)
			}
			producers[name] = made
		}
		producer := producers[name]
		record := &kgo.Record{Topic: said[3], Key: []byte(said[4])}
		if said[5] != "-" {
			record.Value, _ = base64.StdEncoding.DecodeString(said[5])
		}
		record.Headers = []kgo.RecordHeader{{Key: "traceparent", Value: []byte(said[6])}}
		tell := func(at *kgo.Record, err error) {
			if err != nil {
				fmt.Printf("%s\t-\t%s\n", number, err)
			} else {
				fmt.Printf("%s\t%d\t%d\n", number, at.Partition, at.Offset)
			}
		}
		if end == "" {
			producer.Produce(ctx, record, tell)
			continue
		}
		err := producer.BeginTransaction()
		if err == nil {
			err = producer.ProduceSync(ctx, record).FirstErr()
		}
		if ended := producer.EndTransaction(ctx, kgo.TransactionEndTry(end == "commit" && err == nil)); err == nil {
			err = ended
		}
		tell(record, err)
	}
	for _, producer := range producers {
		producer.Close()
	}
}
