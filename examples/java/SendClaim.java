import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class SendClaim {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", System.getenv("GROUNDWIRE_BROKERS"));
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        String topic = System.getenv().getOrDefault("GROUNDWIRE_TOPIC_PREFIX", "groundwire.") + "claims";
        String claim = "{\"claim_id\": \"9\", \"user_id\": \"maria\", \"source\": \"user\","
            + " \"content\": \"I prefer tabs over spaces\"}";
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>(topic, "default:maria", claim)).get();
        }
    }
}
