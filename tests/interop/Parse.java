// SPDX-License-Identifier: Apache-2.0
// Reads records with Apache's own classes: pairs of what it is and its bytes in hexadecimal; prints what it found.

import java.util.HexFormat;
import org.apache.bookkeeper.mledger.impl.MetaStoreImpl;
import org.apache.bookkeeper.proto.DataFormats.BookieServiceInfoFormat;
import org.apache.pulsar.broker.namespace.NamespaceEphemeralData;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;

public class Parse {
    public static void main(String[] arguments) throws Exception {
        var records = new MetaStoreImpl(null, null);
        for (int i = 0; i < arguments.length; i += 2) {
            byte[] bytes = HexFormat.of().parseHex(arguments[i + 1]);
            System.out.println(switch (arguments[i]) {
                case "broker" -> {
                    var load = ObjectMapperFactory.getMapper().reader().readValue(bytes, LocalBrokerData.class);
                    yield load.getPulsarServiceUrl() + " " + load.getWebServiceUrlTls() + " "
                            + load.getAdvertisedListeners().keySet();
                }
                case "owner" -> {
                    var owner = ObjectMapperFactory.getMapper().reader().readValue(bytes, NamespaceEphemeralData.class);
                    yield owner.getNativeUrl() + " " + owner.getHttpUrlTls();
                }
                case "bookie" -> {
                    var info = BookieServiceInfoFormat.parseFrom(bytes);
                    yield info.getEndpoints(0).getHost() + " " + info.getPropertiesMap();
                }
                case "topic" -> records.parseManagedLedgerInfo(bytes).getLedgerInfoCount();
                case "cursor" -> records.parseManagedCursorInfo(bytes).getIndividualDeletedMessagesCount();
                default -> throw new IllegalArgumentException(arguments[i]);
            });
        }
    }
}
