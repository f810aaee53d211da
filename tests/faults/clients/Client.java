import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Apache Kafka's own client; see clients/__init__.py for the lines. */
class Client {
  private static final Map<String, Producer<byte[], byte[]>> PRODUCERS = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = lines.readLine()) != null; ) {
      String[] said = line.split("\t", -1);
      boolean transaction = !said[2].isEmpty();
      var producer = producer(arguments[0], said[1], transaction ? arguments[1] : null);
      byte[] value = said[5].equals("-") ? null : Base64.getDecoder().decode(said[5]);
      var record = new ProducerRecord<byte[], byte[]>(said[3], said[4].getBytes(), value);
      record.headers().add("traceparent", said[6].getBytes());
      if (transaction) producer.beginTransaction();
      var sent = producer.send(record, (at, error) -> {
        if (!transaction) tell(said[0], error == null ? at.partition() + "\t" + at.offset() : "-\t" + error);
      });
      if (!transaction) continue;
      var at = sent.get();
      if (said[2].equals("abort")) producer.abortTransaction();
      else producer.commitTransaction();
      tell(said[0], at.partition() + "\t" + at.offset());
    }
    for (var producer : PRODUCERS.values()) producer.close();
  }

  private static synchronized void tell(String number, String answer) {
    System.out.println(number + "\t" + answer.replace('\n', ' '));
  }

  private static Producer<byte[], byte[]> producer(String brokers, String codec, String id) {
    return PRODUCERS.computeIfAbsent(codec + id, name -> {
      var settings = new Properties();
      settings.put("bootstrap.servers", brokers);
      settings.put("compression.type", codec);
      settings.put("linger.ms", 20);
      settings.put("max.request.size", 2_000_000);
      settings.put("key.serializer", ByteArraySerializer.class);
      settings.put("value.serializer", ByteArraySerializer.class);
      if (id != null) settings.put("transactional.id", id + "-" + codec);
      var made = new KafkaProducer<byte[], byte[]>(settings);
      if (id != null) made.initTransactions();
      return made;
    });
  }
}
